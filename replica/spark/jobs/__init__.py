"""Jobs on Spark: whole pipelines from a binary log to tables that people query.

    changelog    every change, append-only, as Parquet or Delta; ``typed_changelog``: one Delta table for each table
    mirror       tables as they are now, in Delta
    history      all states that rows have had, with their times, in Delta
    resync       asks one of these two to copy a table anew
    pipeline     the demo: ``mirror`` of a recorded log, which a local server sends; ``make pipeline``

Each of the first four is a module with functions to import, a subcommand (``mysql-replica spark changelog``) and a
script (``python -m replica.spark.jobs.changelog``, or the file given to ``spark-submit``). ``spark-submit`` runs the
file without its package, so these modules import by absolute names; all others import relatively. ``--help`` must
work without the extras, so pyspark and deltalake, and modules that need them, are imported in functions.

    job_arguments     the command line arguments that all jobs share
    spark_session     the SparkSession, the folders of a job's state, running and ending a query
    spark_errors      errors of Spark or its machines, in one line
    delta_append      appending to a Delta table exactly once, for ``changelog``
    parquet_append    the same for Parquet on an object store; ``partitioned_files`` writes the files of both
    changelog_layout  which rows share a file
    file_sink         checks of Spark's file sink, for ``changelog``
    table_job         the common part of ``mirror``, ``history`` and ``typed_changelog``
    file_shares       files -> micro-batches
    coverage, seed    where a job begins: does the log reach back far enough; the tables' state at a checkpoint
    blocking          a coroutine run by code that is not asynchronous
    first_copy        the source's tables as they are now -> leaves, by ``copy_plan`` and ``copy_tasks``
    rows_again        rows of a copy for which the log lacks columns; ``read_again`` reads them by key
    settled_copy      tables as they are at one exact place of the log: with these a history begins
    copies_anew       tables of a running job that are copied anew: those of ``copy_requests``, and new ones
    keeper            one micro-batch after another: when tables are merged, and the state of the job
    micro_batch       a micro-batch -> steps of single tables
    staging           rows of a micro-batch -> files in the target, in which they wait for a merge
    staged_source     the tasks that read the log and stage its rows
    current_rows      a table with the rows that wait, for readers
    merges            waiting rows and a table's leaves -> new leaves; ``merge_tasks`` does this on Spark,
                      ``direct_merges`` on Spark without a shuffle
    leaves            which files of a table hold which keys
    leaf_merge        the changes and the files of one leaf -> its new files, by ``leaf_files``
    changes_per_key   rows -> the changes of each key
    column_values     the defaults of columns
    conversions       rows of a table in another form, after DDL; ``convert_tasks`` converts file by file
    table_merges      merges from the waiting rows of tables to their commits
    table_versions    whether a table was taken back to an older version than its state
    deleted_rows      which rows of a table a copy of it lacks
    changed_values    whether a change of a column's type changes stored values
    redefinitions     such a change, or one of a character set, by ``lost_characters``: noted or refused
    append_tasks      waiting rows -> new files of changes
    kept_table        a table in Delta: ``current_table``, ``past_table`` (with ``states``) or ``changes_table``
    target            where the tables of a job are, and which tables it keeps
    stamps            the columns that a mirror may add to rows
    delta_statistics  which columns of a table have ranges in Delta's log
    job_state         the state that a job keeps from one micro-batch to the next

Statements are read by ``replica.sql.ddl``.
"""
