"""What will make replication fail later, found before it does: ``await replica.doctor.examine(dsn)``.

    Session -> facts -> checks -> findings, and at the end a trial: a dump is asked for, and its first events read

Nothing is changed on the source. The trial has a server id of its own, so that it ends no other replica's connection.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from protocol.constants import EventType
from protocol.errors import AuthenticationError, ConnectionLostError, ReplicaError

from ..config.checkpoint import CheckpointKeeper
from ..config.options import Options, parse_dsn
from ..source.open_dump import open_first
from ..source.session import Session
from .checks import all_findings
from .facts import collect
from .finding import Finding, Remedy, State, Where, stream_option

__all__ = ["Finding", "Remedy", "State", "Where", "can_start", "examine"]

# Everything but what says where the dump begins: once one of these comes, the source has found the place.
_BEFORE_EVENTS: Final = frozenset({EventType.ROTATE})
_SECURE_TRANSPORT_REQUIRED: Final = 3159


async def examine(dsn: str | None = None, /, **given: object) -> list[Finding]:
    """Look at everything that a stream of these options depends on; the options are those of ``replica.connect``.

    ``tables`` and ``exclude_tables`` say which tables are looked at, ``start`` and ``checkpoints`` which place of the
    log has to be there. What is wrong is a finding, also where the source cannot be reached; only options that cannot
    be used are raised, as ``ConfigurationError``.
    """
    options = Options.build(dsn, given)
    chosen_id = given.get("server_id") is not None or (dsn is not None and "server_id" in parse_dsn(dsn))
    try:
        session = await Session.open(options)
    except ReplicaError as error:
        return [_no_connection(error)]
    findings = [Finding("connection", "ok", f"logged in at {options.address} as {options.user}")]
    try:
        facts = await collect(session, options, chosen_id=chosen_id)
    except ReplicaError as error:
        return [*findings, Finding("questions", "failure", str(error))]
    finally:
        await session.aclose()
    findings += all_findings(facts)
    if can_start(findings):
        findings.append(await _trial(options))
    return findings


def can_start(findings: Sequence[Finding]) -> bool:
    """Whether a stream can be started, for now: nothing has failed."""
    return all(finding.state != "failure" for finding in findings)


def _no_connection(error: ReplicaError) -> Finding:
    needs_tls = isinstance(error, AuthenticationError) and error.code == _SECURE_TRANSPORT_REQUIRED
    remedies = stream_option("tls=required") if needs_tls else ()
    return Finding("connection", "failure", str(error), remedies)


async def _trial(options: Options) -> Finding:
    """Ask for the log as the stream would, and see that it comes."""
    name = "start"
    # The same identity would end the dump of a stream that runs.
    stranger = Options.build(None, {"user": options.user})
    trial = replace(
        options,
        server_id=stranger.server_id,
        replica_uuid=stranger.replica_uuid,
        stop=None,
        semi_sync=False,
        # By its heartbeats the source finds out that nobody listens any more.
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
    told = (
        f"the log comes, from {place or 'its beginning'}"
        if is_sent
        else "the source still seeks the first event"
    )
    return Finding(name, "ok", told)


async def _sees_events(session: Session, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while events := await session.read_events(None):
                if any(raw[4] not in _BEFORE_EVENTS for raw in events):
                    return True
    except TimeoutError:
        return False
    raise ConnectionLostError("the source ended the binlog dump before its first event")
