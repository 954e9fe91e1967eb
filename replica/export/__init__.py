"""A consistent export of tables: files that hold the tables as they are at one place of the log.

    row_formats    rows as JSON lines and CSV, and the files of these formats
    work_folder    the unfinished export: its database, its checkpoint, parts of files
    table_files    the files of one table while it is copied, and changes that come after its rows were written
    work_checks    whether the database and the parts belong together
    exporter       from a stream to the folder

The rows come from a stream that copies the tables (``start="snapshot"``): reads, and the changes of the log between
them. Reads are written as they come. A change of a row is kept beside the files; when all tables are read, the files
get these changes. So the files have the state at the place where that happened, and the checkpoint is that place.
"""
