"""Jobs: whole pipelines from a log to tables that people query, on Spark.

    changelog    every change, append-only, as Parquet or Delta

Each is a module with functions to import, a subcommand (``mysql-replica spark changelog``) and a script
(``python -m replica.spark.jobs.changelog``, or the file given to ``spark-submit``). A script has no package around
it, so modules here import by absolute name; and since ``--help`` must work without the extras, functions import them.

    arguments    what jobs have in common on a command line
    session      a SparkSession, where state lives, how a query runs and ends
"""
