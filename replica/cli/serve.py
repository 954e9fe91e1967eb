"""``mysql-replica serve``: serves binlog files to replicas, tools and streams, as their source would.

``replica.server`` is imported when it runs, so that other subcommands do not load asyncio and TLS.
"""

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigurationError
from protocol.wire import utf8_text

from ..config.options import PASSWORD_VARIABLE
from ..files.log_files import read_whole
from .arguments import add_metrics_argument, read_address
from .command import Command
from .console import Console

if TYPE_CHECKING:
    import ssl


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "files",
        metavar="DIR",
        help="directory of binlog files, such as a relay writes; or an .index file, or a pattern",
    )
    add(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:3307",
        help="address to listen on; default: 127.0.0.1:3307, for this machine only; port 0: any free port",
    )
    add("--user", default="repl", metavar="NAME", help="the only user that can log in; default: repl")
    add(
        "--password-file",
        metavar="FILE",
        help=f"file whose first line is the password; default: the environment variable {PASSWORD_VARIABLE}",
    )
    add("--no-password", action="store_true", help="let anybody log in without a password")
    add("--tls-cert", metavar="FILE", help="TLS certificate (PEM); default: a new self-signed one")
    add("--tls-key", metavar="FILE", help="private key of --tls-cert (PEM), if it is in a separate file")
    add("--no-tls", action="store_true", help="do not offer TLS")
    add("--require-tls", action="store_true", help="refuse clients without TLS")
    add(
        "--semi-sync",
        action="store_true",
        help="ask semi-synchronous replicas to acknowledge each transaction",
    )
    add("--server-id", metavar="N", type=int, help="server_id of the source; default: the one in the files")
    add(
        "--server-uuid",
        metavar="UUID",
        help="server_uuid of the source; default: from auto.cnf beside the files",
    )
    add_metrics_argument(parser)


_EPILOG: Final = """\
To make a server its replica, run there:
  MySQL    CHANGE REPLICATION SOURCE TO SOURCE_HOST = '...', SOURCE_PORT = 3307, SOURCE_USER = 'repl',
           SOURCE_PASSWORD = '...', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1; START REPLICA;
  MariaDB  CHANGE MASTER TO MASTER_HOST = '...', MASTER_PORT = 3307, MASTER_USER = 'repl',
           MASTER_PASSWORD = '...', MASTER_USE_GTID = slave_pos; START SLAVE;"""


def _run(options: Namespace, console: Console) -> int:
    from ..server import BinlogServer
    from ..server.server_metrics import server_metrics
    from .metrics import Report, serving_metrics
    from .service import run_until_stopped

    host, port = read_address("--listen", options.listen)
    server = BinlogServer(
        options.files,
        user=options.user,
        password=_password(options),
        host=host,
        port=port,
        tls=_tls(options),
        require_tls=options.require_tls,
        allow_empty_password=options.no_password,
        semi_sync=options.semi_sync,
        server_id=options.server_id,
        server_uuid=options.server_uuid,
    )

    def report() -> Report:
        return Report("serving", True, server_metrics(server, f"{host}:{server.port}"))

    async def serve() -> None:
        async with server, serving_metrics(options.metrics, report, console):
            console.note(f"serving {options.files} ({server.version}) at {host}:{server.port}")
            await server.serve_forever()

    run_until_stopped(serve, server.aclose)
    return 0


def _password(options: Namespace) -> str:
    if options.password_file:
        content = utf8_text(read_whole(options.password_file))
        password = content.partition("\n")[0].removesuffix("\r")
        if not password and not options.no_password:
            raise ConfigurationError(
                f"--password-file: the first line of {options.password_file} is empty; write the password there, or "
                "use --no-password to let anybody read the log"
            )
        return password
    if options.no_password:
        return ""
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if not password:
        raise ConfigurationError(
            f"password: none is given; set {PASSWORD_VARIABLE} or give --password-file, or use --no-password to let "
            "anybody read the log"
        )
    return password


def _tls(options: Namespace) -> "ssl.SSLContext | bool":
    if options.tls_key and not options.tls_cert:
        raise ConfigurationError("--tls-key needs --tls-cert: give the certificate as well")
    if options.tls_cert is None:
        return not options.no_tls
    if options.no_tls:
        raise ConfigurationError("--no-tls and --tls-cert exclude one another: give only one of them")
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key, _no_passphrase)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(f"--tls-cert: {options.tls_cert}: {error.strerror or error}") from error
    return context


def _no_passphrase() -> str:
    # Without this callback OpenSSL would prompt at the terminal, and wait.
    raise ConfigurationError(
        "--tls-key: the key is encrypted; decrypt it with: openssl pkey -in KEY -out PLAIN"
    )


COMMAND: Final = Command(
    "serve", "Serve binlog files to replicas, as a source", _add_arguments, _run, _EPILOG
)
