"""The facts of a source as ``server_facts.ask`` finds them, for tests that ask no server."""

from __future__ import annotations

from replica.source.server_facts import Source

#: MySQL 9.7 with GTIDs. Others differ by ``replace``.
MYSQL97 = Source(
    is_mariadb=False,
    version=(9, 7, 4),
    server_id=97,
    server_uuid="11111111-2222-3333-4444-555555555555",
    has_gtids=True,
    has_checksums=True,
    log_bin=True,
    binlog_format="ROW",
    clock_offset=0.0,
    clock_lead=0.0,
)
