"""What a record of the logger ``replica`` holds besides its text: attributes for JSON loggers and filters.

``event`` is a short name that stays the same when the text changes (``EVENTS``). The other attributes are numbers or
text. None of them holds a password.
"""

from typing import Final

#: All values of ``event``, and what the record tells. Other records have no ``event``.
EVENTS: Final = {
    "connection-lost": "a stream, relay or Spark's intake tries again: source, error, attempt, delay (seconds)",
    "host-skipped": "another host of the list is used: source, error, next_source",
    "transaction-restarted": "rows of a transaction come again from its beginning: source, gtid, reason",
    "names-unknown": "the source does not show a table's columns: table, reason",
    "names-corrected": "information_schema differs from the statements of the log: table, binlog_file, "
    "binlog_position",
    "pattern-unmatched": "a pattern of tables= has matched nothing: source, pattern, nearest",
    "log-purged": "start= is a time before the source's oldest file: source, binlog_file",
    "changes-unlogged": "a source's log leaves out changes of selected tables: source, reason",
    "semi-sync-off": "commits on the source do not wait: source",
    "password-exposed": "the password was sent over TLS that nobody verified: source",
    "read-again": "a chunk of the first copy is read again: source, table, error",
    "copy-waits": "rows of the first copy wait for the source's next log file: source, table, rows",
    "end-unreached": "an idle source has not sent its log up to the end that it told: source, end, sent",
    "copy-restarts": "a table without a key is read again and again, as it is written to: source, table, times",
    "copy-awaits-xa": "a table without a key waits for prepared XA transactions: source, table, xids",
    "selection-changed": "a copy that goes on has other tables= than before: source, tables (copied now)",
    "several-servers": "behind the address are several servers: source, server (sends the log), other",
    "statements-logged": "a relay's source logs statements instead of rows: source, binlog_format",
    "close-failed": "an error while a stream was closed by another error: source, error",
    "client-refused": "the server refused a replica: client, error",
}


def log_facts(event: str, **facts: object) -> dict[str, object]:
    """The argument ``extra`` of a record; ``event`` is one of ``EVENTS``."""
    assert event in EVENTS, event
    return {"event": event} | {
        name: value if isinstance(value, int | float) else str(value) for name, value in facts.items()
    }
