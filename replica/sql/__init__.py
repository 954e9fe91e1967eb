"""SQL text that binary logs and replicas hold: words, kinds of statements, DDL, quoting. No connection, no events."""
