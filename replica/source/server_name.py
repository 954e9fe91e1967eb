"""What tells one server from another: behind one address may be several, where a proxy spreads connections over them.

Positions, tables and connection ids of one server mean nothing on another one. So all connections of a stream ask
for this name, and must reach the server that sends the log.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from protocol.conversation.messages import TextValue

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
