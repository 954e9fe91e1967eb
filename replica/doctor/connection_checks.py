"""The doctor's checks of the connection: TLS, clocks, heartbeats, timeouts, and semi-synchronous commits."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from ..source.semi_sync import installing
from .facts import Facts
from .finding import Finding, option_file, shell, sql, stream_option
from .settings import set_variable

_DAY: Final = 86400
_CLOCK_SECONDS: Final = 3
_NET_WRITE_TIMEOUT: Final = 60  # the servers' own default
_SHORT_SEMI_SYNC_TIMEOUT: Final = 1  # seconds
_SEMI_SYNC_TIMEOUT: Final = 10_000  # milliseconds: the servers' own default
_CERTIFICATE_DAYS: Final = 30
_CERTIFICATES: Final = ("ssl_cert = server-cert.pem", "ssl_key = server-key.pem")


def check_tls(facts: Facts) -> Iterator[Finding]:
    """Whether rows are encrypted on the network, and whether the source's certificate expires soon."""
    name = "TLS"
    options = facts.options
    if facts.uses_tls:
        expiry = facts.status.get("ssl_server_not_after", "")
        left = _days_left(expiry)
        if left is not None and left < _CERTIFICATE_DAYS:
            reload = "FLUSH SSL" if facts.is_mariadb else "ALTER INSTANCE RELOAD TLS"
            message = f"the source's certificate expires {expiry}: renew it, then have the source load it"
            yield Finding(name, "warning", message, sql(reload))
            return
        is_verified = options.tls.startswith("verify-")
        how = "certificate verified" if is_verified else "certificate not verified (tls=verify-identity does)"
        yield Finding(name, "ok", f"encrypted, {how}")
    elif options.unix_socket is not None:
        yield Finding(name, "ok", "not needed on a Unix socket")
    elif facts.offers_tls:
        message = "rows are sent unencrypted, although the source offers TLS"
        yield Finding(name, "warning", message, stream_option("tls=required"))
    elif not facts.is_mariadb and facts.version < (5, 7):
        tunnel = f"ssh -N -L 13306:127.0.0.1:{options.port} {options.host}"
        message = "rows are sent unencrypted: this version's TLS is too old to be used, so use an SSH tunnel"
        yield Finding(
            name, "warning", message, (*shell(tunnel), *stream_option("host=127.0.0.1", "port=13306"))
        )
    else:
        make = (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=source -keyout server-key.pem "
            "-out server-cert.pem"
        )
        message = (
            "rows are sent unencrypted: the source has no certificate; make one in its data directory, as the user "
            "that the server runs as"
        )
        yield Finding(name, "warning", message, (*shell(make), *option_file(*_CERTIFICATES)))


def _days_left(text: str) -> float | None:
    """Days until a time as OpenSSL prints it, such as "Nov 19 00:27:30 2036 GMT"; None for any other text."""
    try:
        end = datetime.strptime(text, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (end - datetime.now(UTC)).total_seconds() / _DAY


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Whether the source's clock agrees with ours; the source tells its time in whole seconds."""
    name = "clock"
    lead = facts.source.clock_offset
    if abs(lead) <= _CLOCK_SECONDS:
        yield Finding(name, "ok", "the source's clock agrees with ours")
        return
    where = "ahead of" if lead > 0 else "behind"
    yield Finding(
        name,
        "warning",
        f"the source's clock is {abs(lead):.0f} s {where} ours: so are event timestamps, and a start or stop time "
        "counts by the source's clock; correct the machine whose clock is wrong",
        shell("timedatectl set-ntp true"),
    )


def check_timeouts(facts: Facts) -> Iterator[Finding]:
    """Heartbeats, which reveal a dead connection, and how long the source waits for a slow consumer."""
    if facts.options.heartbeat:
        yield Finding("heartbeat", "ok", f"every {facts.options.heartbeat:g} s")
    else:
        message = "off: a dead connection is not noticed"
        yield Finding("heartbeat", "warning", message, stream_option("heartbeat=30"))
    name = "net_write_timeout"
    seconds = facts.number(name) or _NET_WRITE_TIMEOUT
    if seconds >= _NET_WRITE_TIMEOUT:
        yield Finding(name, "ok", f"{seconds} s")
        return
    yield Finding(
        name,
        "warning",
        f"{seconds} s: the source closes the connection of a consumer that pauses for longer, and later sends the "
        "open transaction again",
        set_variable(facts, name, str(_NET_WRITE_TIMEOUT)),
    )


def check_semi_sync(facts: Facts) -> Iterator[Finding]:
    """Whether commits wait for an acknowledgement, if the stream is to be semi-synchronous."""
    name = "semi_sync"
    if not facts.options.semi_sync:
        return
    if facts.semi_sync is not None and facts.semi_sync[1]:
        yield _enabled_semi_sync(facts, facts.semi_sync[0])
        return
    if facts.is_relay:
        message = "the source does not offer semi-synchronous replication: the stream cannot start"
        yield Finding(name, "failure", message, shell("mysql-replica serve --semi-sync DIR"))
        return
    word = "master" if facts.is_mariadb or facts.version < (8, 0, 26) else "source"
    variable = facts.semi_sync[0] if facts.semi_sync else f"rpl_semi_sync_{word}_enabled"
    enable = set_variable(facts, variable, "1")
    if facts.semi_sync is None:
        message = "the source has no semi-synchronous replication: the stream cannot start"
        yield Finding(name, "failure", message, (*sql(*installing(facts.source)), *enable))
    else:
        yield Finding(name, "warning", f"{variable} is OFF: commits wait for no replica", enable)


def _enabled_semi_sync(facts: Facts, variable: str) -> Finding:
    """How long a commit waits for an acknowledgement at most, and whether commits wait at the moment.

    After the timeout the source commits asynchronously, until a semi-synchronous replica has caught up. The status
    variable is also OFF when no such replica is connected, as is usual before the stream starts.
    """
    name = "semi_sync"
    prefix = variable.removesuffix("_enabled")
    timeout = f"{prefix}_timeout"
    milliseconds = facts.number(timeout)
    if facts.variable(timeout) is None:
        # A BinlogServer: it serves files, and commits nothing.
        return Finding(name, "ok", f"{variable} is ON")
    seconds = milliseconds / 1000
    limit = f"a commit waits at most {seconds:g} s ({timeout}), then the source falls back to asynchronous"
    if seconds < _SHORT_SEMI_SYNC_TIMEOUT:
        remedies = set_variable(facts, timeout, str(_SEMI_SYNC_TIMEOUT))
        return Finding(name, "warning", f"{timeout} is short: {limit}", remedies)
    if facts.status.get(f"{prefix}_status", "").upper() != "OFF":
        return Finding(name, "ok", f"{variable} is ON: {limit}")
    replicas = facts.number(f"{prefix}_clients")
    if not replicas:
        message = f"{variable} is ON: {limit}, as it has now: no semi-synchronous replica is connected"
        return Finding(name, "ok", message)
    return Finding(
        name,
        "warning",
        f"{prefix}_status is OFF with semi-synchronous replicas connected ({replicas}): the source has fallen back "
        f"to asynchronous, as an acknowledgement took longer than {seconds:g} s ({timeout})",
        set_variable(facts, timeout, str(2 * milliseconds)),
    )
