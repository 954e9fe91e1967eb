"""Binary logs as tables of Apache Spark (extra ``[spark]``)."""
