"""The text of events that both families print alike: variables before statements, LOAD DATA's files, incidents.

Formats: the ``print`` functions of MySQL's ``sql/log_event.cc``, which MariaDB inherited. Statements are in
``query``.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import singledispatch

from protocol.binlog.events import (
    AppendBlockEvent,
    BeginLoadQueryEvent,
    DeleteFileEvent,
    Event,
    IncidentEvent,
    IntvarEvent,
    RandEvent,
    UserVarEvent,
)
from protocol.charset import charset_of_collation
from protocol.constants import INTVAR_NAMES

from .collations import collation_name, mysql_collation_name
from .query import DELIMITER
from .rows import quoted_name
from .values import Flavor

_END = DELIMITER + b"\n"
_INCIDENTS = {0: b"NOTHING", 1: b"LOST_EVENTS"}


@singledispatch
def statement_text(event: Event) -> bytes:
    """The event's own text; empty for events of other types."""
    return b""


@statement_text.register
def _intvar(event: IntvarEvent) -> bytes:
    name = INTVAR_NAMES.get(event.variable, "INVALID_INT")
    return b"\tIntvar\nSET %b=%d%b" % (name.encode(), event.value, _END)


@statement_text.register
def _rand(event: RandEvent) -> bytes:
    return b"\tRand\nSET @@RAND_SEED1=%d, @@RAND_SEED2=%d%b" % (event.seed1, event.seed2, _END)


@statement_text.register
def _append_block(event: AppendBlockEvent) -> bytes:
    name = b"Begin_load_query" if isinstance(event, BeginLoadQueryEvent) else b"Append_block"
    return b"\n#%b: file_id: %d  block_len: %d\n" % (name, event.file_id, len(event.block))


@statement_text.register
def _delete_file(event: DeleteFileEvent) -> bytes:
    return b"\n#Delete_file: file_id=%d\n" % event.file_id


@statement_text.register
def _incident(event: IncidentEvent) -> bytes:
    """An incident as a statement that fails when it is replayed."""
    name = _INCIDENTS.get(event.incident, b"%d" % event.incident)
    return b"\n# Incident: %b\nRELOAD DATABASE; # Shall generate syntax error\n" % name


def user_variable(event: UserVarEvent, flavor: Flavor) -> bytes:
    """The statement that sets a user variable, with its delimiter."""
    return b"SET @%b:=%b%b" % (quoted_name(event.name), user_value(event, flavor), _END)


def user_value(event: UserVarEvent, flavor: Flavor, quote: Callable[[str], bytes] = quoted_name) -> bytes:
    """A user variable's value as an expression; strings as hexadecimal literals with their collation."""
    value = event.value
    if isinstance(value, bytes):
        is_mariadb = flavor == "mariadb"
        charset = charset_of_collation(event.collation, is_mariadb)
        name = collation_name(event.collation) if is_mariadb else mysql_collation_name(event.collation)
        digits = value.hex().upper().encode()
        literal = (b"X'%b'" % digits if is_mariadb else b"0x%b" % digits) if value else b'""'
        return b"_%b %b%b" % (
            (charset.name if charset else "binary").encode(),
            literal,
            b"" if name is None else b" COLLATE %b" % quote(name),
        )
    if isinstance(value, float):
        return b"%.14g" % value
    if isinstance(value, Decimal):
        return f"{value:f}".encode()
    return b"NULL" if value is None else b"%d" % value
