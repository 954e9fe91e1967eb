"""Checks a source for everything that makes replication fail later: ``await replica.doctor.examine(dsn)``.

    Session -> facts -> checks -> findings; at the end a trial dump is started and its first events are read

Nothing is changed on the source. The trial has a server id of its own, so that it ends no other replica's connection.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from protocol.constants import EVENT_HEADER_SIZE, EventType
from protocol.errors import AuthenticationError, ConnectionLostError, ReplicaError, TruncatedError
from protocol.records import replace

from ..config.checkpoint import CheckpointKeeper
from ..config.options import Options, parse_dsn
from ..source.hosts import first_host
from ..source.open_dump import open_first
from ..source.session import Session
from .checks import all_findings
from .facts import collect
from .finding import Finding, Remedy, State, Where, stream_option

__all__ = ["Finding", "Remedy", "State", "Where", "can_start", "examine"]

# Comes before the first event of the log; any other type shows that the source has found the start position.
_BEFORE_EVENTS: Final = frozenset({EventType.ROTATE})
_SECURE_TRANSPORT_REQUIRED: Final = 3159


async def examine(dsn: str | None = None, /, **given: object) -> list[Finding]:
    """Check everything that a stream with these options depends on; the options are those of ``replica.connect``.

    ``tables`` and ``exclude_tables`` say which tables are checked, ``start`` and ``checkpoints`` which position the
    log must still contain. Every problem is a finding, also a source that cannot be reached. Only invalid options
    raise: ``ConfigurationError``.
    """
    options = Options.build(dsn, given)
    chosen_id = given.get("server_id") is not None or (dsn is not None and "server_id" in parse_dsn(dsn))
    try:
        session = await first_host(options, Session.open)
    except ReplicaError as error:
        return [_no_connection(error)]
    findings = [Finding("connection", "ok", f"logged in at {options.address} as {options.user}")]
    try:
        facts = await collect(session, options, chosen_id=chosen_id)
    except ReplicaError as error:
        return [*findings, Finding("queries", "failure", str(error))]
    finally:
        await session.aclose()
    findings += all_findings(facts)
    if can_start(findings):
        findings.append(await _trial(options))
    return findings


def can_start(findings: Sequence[Finding]) -> bool:
    """Whether a stream can start now: no check has failed."""
    return all(finding.state != "failure" for finding in findings)


def _no_connection(error: ReplicaError) -> Finding:
    needs_tls = isinstance(error, AuthenticationError) and error.code == _SECURE_TRANSPORT_REQUIRED
    remedies = stream_option("tls=required") if needs_tls else ()
    return Finding("connection", "failure", str(error), remedies)


async def _trial(options: Options) -> Finding:
    """Start a binlog dump as the stream would, and wait for its first event."""
    name = "start"
    # With the stream's own identity the trial would end the dump of a stream that runs already.
    other = Options.build(None, {"user": options.user})
    trial = replace(
        options,
        server_id=other.server_id,
        replica_uuid=other.replica_uuid,
        stop=None,
        semi_sync=False,
        # At its next heartbeat the source notices that the trial has closed its connection.
        heartbeat=1.0,
    )
    try:
        start = None
        if options.checkpoints is not None:
            start = await CheckpointKeeper(options.checkpoints, 0).load()
        opening = await open_first(trial, start or trial.start)
        try:
            await opening.dump.start()
            is_sent = await _sees_events(opening.dump.session, options.connect_timeout)
        finally:
            await opening.dump.session.aclose()
    except ReplicaError as error:
        return Finding(name, "failure", str(error))
    place = (
        f"{opening.start.file}:{opening.start.position}"
        if opening.start.file
        else str(opening.start.gtid_set or "")
    )
    message = (
        f"the source sends its log from {place or 'its beginning'} on"
        if is_sent
        else "the source is still searching its log for the first event to send"
    )
    return Finding(name, "ok", message)


async def _sees_events(session: Session, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while events := await session.read_events(None):
                for raw in events:
                    if len(raw) < EVENT_HEADER_SIZE:
                        raise TruncatedError(f"the source sends an event of {len(raw)} bytes")
                    if raw[4] not in _BEFORE_EVENTS:
                        return True
    except TimeoutError:
        return False
    raise ConnectionLostError("the source ended the binlog dump before its first event")
