"""Writes events as JSON lines, YAML, SQL, a table or lines for people. Reads no file and no server."""
