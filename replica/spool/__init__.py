"""A live source's log, kept in files until Spark has committed it; and the pieces of a log that tasks read.

    live_log           connects to the source, receives raw events, answers the stream reader's questions
    follower           raw events -> the spool, and the places between transactions where a micro-batch may end
    spool              the segment files on disk
    offsets            places in the log, as Spark's offset log keeps them
    live_names         the schema history of a live log: columns of tables whose log has none
    copied_names       that history where ``spoolDir`` is a URI: with a copy for a driver on another machine
    placed_shapes      tables' columns by their places in the log, as pieces carry them
    row_counter        the number of rows in an event, for ``maxRowsPerTrigger``
    planner            binlog files -> pieces, cut between transactions
    pieces             a piece -> its events, with undecoded rows
    transaction_part   the facts of a transaction, for pieces that are a part of one
    shipping           pieces -> pieces with their bytes, for machines that do not see the file
    storage            files by URI, on object stores and shared disks

No module here needs PySpark; some need numpy and pyarrow.
"""
