"""SQL text of binary logs and replicas: words, kinds of statements, DDL, quoting, XA ids. No events."""
