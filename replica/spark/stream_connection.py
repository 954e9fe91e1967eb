"""The options of a query -> the options of its connection to the source, and errors that name them as Spark does."""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from protocol.errors import ReplicaError

from ..config.options import Options
from .source_options import CONNECTION, SourceOptions

# Option of ``replica.connect`` -> option of Spark, where they differ.
_SPARK_NAMES: Final = {option: name for name, option in CONNECTION.items() if option != name} | {
    "max_event_bytes": "maxEventBytes",
    "verify_checksum": "verifyChecksum",
    "exclude_tables": "excludeTables",
    "tables": "includeTables",
    "user": "user",
}
_PLAIN_WORDS: Final = {"server_id", "tables", "user"}
# Not within a path. In the middle of an error ``server_id`` is a variable of the server. Python's "tables=" and
# "user=" are words as they stand alone; Spark's options have no "=".
_NAMED: Final = re.compile(
    rf"^(server_id)(?=:)|(?<![\w./-])({'|'.join(_SPARK_NAMES.keys() - _PLAIN_WORDS)})(?![\w/-]|\.\w)"
    r"(?:=(?=[\s,;:)]|$))?|(?<![\w./-])(tables|user)=(?=[\s,;:)]|$)"
)


def connection_options(options: SourceOptions) -> Options:
    """The options of the connection. Raises ``ConfigurationError``, which names the option."""
    settings = options.settings
    given: dict[str, object] = dict(options.connection)
    given |= {
        "tables": settings.tables,
        "exclude_tables": settings.exclude_tables or None,
        "verify_checksum": settings.verify_checksum,
        "max_event_bytes": settings.max_event_bytes,
    }
    with named_for_spark():
        connection = Options.build(None, given)
        connection.check_one_host("a query reads the log of one server")
    return connection


@contextlib.contextmanager
def named_for_spark() -> Iterator[None]:
    """Have errors name options as Spark's users write them: ``tlsCa``, not ``tls_ca``."""
    try:
        yield
    except ReplicaError as error:
        error.args = tuple(_renamed(one) if isinstance(one, str) else one for one in error.args)
        for name in ("remedy", "reason"):
            if isinstance(text := getattr(error, name, None), str):
                setattr(error, name, _renamed(text))
        raise


def _renamed(text: str) -> str:
    return _NAMED.sub(lambda found: _SPARK_NAMES[found[1] or found[2] or found[3]], text)
