"""SQL text that binary logs and replicas hold: words, kinds of statements, DDL, quoting, XA ids. No connection, no events."""
