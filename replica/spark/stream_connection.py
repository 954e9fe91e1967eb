"""The options of a query -> the options of its connection to the source."""

from ..config.options import Options
from .source_options import SourceOptions


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
    connection = Options.build(None, given)
    connection.check_one_host("a query reads the log of one server")
    return connection
