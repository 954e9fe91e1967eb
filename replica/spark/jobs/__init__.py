"""Jobs: whole pipelines from a log to tables that people query, on Spark.

    changelog    every change, append-only, as Parquet or Delta
    mirror       tables as they are now, in Delta
    history      all states that rows have had, with their times, in Delta
    pipeline     the demo: a recorded log, served, to ``mirror``; ``make pipeline``

Each is a module with functions to import, a subcommand (``mysql-replica spark changelog``) and a script
(``python -m replica.spark.jobs.changelog``, or the file given to ``spark-submit``). A script has no package around
it, so modules here import by absolute name; and since ``--help`` must work without the extras, functions import them.

    arguments    what jobs have in common on a command line
    session      a SparkSession, where state lives, how a query runs and ends
    table_job    what mirror and history are besides the kind of their tables
    keeper       a micro-batch to steps of single tables; its own modules, from the log to Delta:
                 coverage, seed      where to begin
                 sql_reader, ddl     what statements do to tables
                 changes_per_key     rows to what they are for each key
                 kept_table          a table in Delta, and its two kinds: current_table, past_table
                 job_state           what must be known from one micro-batch to the next
"""
