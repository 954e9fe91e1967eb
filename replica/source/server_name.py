"""A name that tells one server from another: behind one address, a proxy may spread connections over several.

Positions, tables and connection ids of one server mean nothing on another one. So all connections of a stream ask
for this name, and must reach the server that sends the log.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from protocol.conversation.messages import TextValue

from ..config.log_facts import log_facts
from ..config.options import Options

_LOGGER: Final = logging.getLogger(__name__)

#: What the name is made of. Nodes of Galera may have one server_id, and servers of one machine one hostname.
NAME_VARIABLES: Final = ("hostname", "port", "server_id", "server_uuid")


def variables_statement(names: Iterable[str]) -> str:
    """The statement that shows these variables. A server leaves out those that it does not know."""
    listed = ", ".join(f"'{name}'" for name in names)
    return f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})"


def variables_of(rows: Iterable[tuple[TextValue, ...]]) -> dict[str, str]:
    """The answer: values by lower-case names."""
    return {str(name).lower(): str(value) for name, value in rows}


def server_name(variables: Mapping[str, str]) -> str:
    """MySQL's server_uuid; else what there is."""
    uuid = variables.get("server_uuid")
    if uuid:
        return uuid
    host, port = variables.get("hostname", ""), variables.get("port", "")
    return f"{variables.get('server_id', '')} on {host}:{port}"


def warn_of_others(options: Options, found: str) -> None:
    """Warn once for a stream that another server answered than the one that the options name."""
    if "servers" not in options.warned:
        options.warned.add("servers")
        _LOGGER.warning(
            "%s leads to several servers: %s sends the log, and %s answers. What is asked besides is asked of the "
            "first one only, and connections are opened until they reach it: better give the address of one server",
            options.address,
            options.server,
            found,
            extra=log_facts("several-servers", source=options.address, server=options.server, other=found),
        )
