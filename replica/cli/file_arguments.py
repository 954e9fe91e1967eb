"""Arguments of the subcommands that read binlog files: incomplete files, checksums, keys of encrypted logs."""

import contextlib
import os
from argparse import ArgumentParser, Namespace
from typing import Final

from protocol.constants import BINLOG_MAGIC
from protocol.errors import ConfigurationError, TruncatedError
from protocol.rows.cells import CellTable
from protocol.wire import utf8_text

from ..config.selection import SchemaMismatch
from ..files.binlog_file import BinlogFile, KeyFile, open_binlog
from ..files.log_files import find_log_files, read_whole
from .arguments import patterns

_SECRET_FILE: Final = "FILE:"


def add_workers_argument(parser: ArgumentParser, alone: str = "--start, --stop and --force") -> None:
    """Add ``--workers``; ``alone`` are the options with which one process reads."""
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=1,
        help="processes that read sections of the files side by side, for the same output; default: 1. One process "
        f"reads with {alone}, relay logs, compressed files and standard input",
    )


def add_file_arguments(parser: ArgumentParser) -> None:
    """Add the arguments for reading files. The subcommand adds ``--start``, ``--stop``, ``--force`` and tables."""
    add = parser.add_argument
    add(
        "--torn",
        choices=("stop", "raise"),
        default="stop",
        help="if the last event of a file is incomplete, stop before it (default) or fail",
    )
    add("--no-verify-checksum", action="store_true", help="do not verify the CRC32 checksums of events")
    add(
        "--max-event-bytes",
        metavar="N",
        type=int,
        help="fail at an event of more bytes, also uncompressed; default: 1 GiB and 1 MiB, as servers write them",
    )
    add("--keyring", metavar="FILE", help="for encrypted logs of MySQL: the keyring file")
    add(
        "--key", metavar="HEX", help="for encrypted logs of MySQL: the replication key, 64 hexadecimal digits"
    )
    add(
        "--key-file",
        metavar="FILE",
        help="for encrypted logs of MariaDB: the key file (file_key_management_filename)",
    )
    add(
        "--key-file-secret",
        metavar="SECRET",
        help="the password of --key-file, or FILE:PATH (file_key_management_filekey)",
    )
    add(
        "--key-file-iterations",
        metavar="N",
        type=int,
        default=0,
        help="the PBKDF2 iterations of --key-file (file_key_management_use_pbkdf2); default: 0",
    )


def open_files(
    options: Namespace,
    files: list[str],
    *,
    schema: str | None = None,
    cells: CellTable | None = None,
    row_values: bool = True,
    on_schema_mismatch: SchemaMismatch = "error",
) -> BinlogFile:
    """Open the files with these arguments. Raises ``ConfigurationError``, which names the argument."""
    for name, given, is_fit, need in (
        ("--key-file-secret", options.key_file_secret, options.key_file, "it needs --key-file"),
        ("--key", options.key, not options.keyring, "give either --key or --keyring"),
    ):
        if given and not is_fit:
            raise ConfigurationError(f"{name} does not go together with the other options: {need}")
    key_file = None
    if options.key_file:
        key_file = KeyFile(options.key_file, _secret(options.key_file_secret), options.key_file_iterations)
    return open_binlog(
        files,
        start=_offset_or_place(options.start),
        stop=_offset_or_place(options.stop),
        tables=patterns(options.tables),
        exclude_tables=patterns(options.exclude_tables),
        row_values=row_values,
        on_error="skip" if options.force else "raise",
        torn=options.torn,
        verify_checksum=not options.no_verify_checksum,
        max_event_bytes=options.max_event_bytes,
        on_schema_mismatch=on_schema_mismatch,
        schema=schema,
        keyring=_key(options.key) if options.key else options.keyring,
        key_file=key_file,
        cells=cells,
    )


def check_not_read(option: str, path: str, files: list[str]) -> None:
    """Raise ``ConfigurationError`` if a file to be written is one of those to be read, or of a folder of them."""
    for source in find_log_files(files) if os.path.exists(path) else ():
        with contextlib.suppress(OSError):
            if source.path is not None and os.path.samefile(source.path, path):
                raise ConfigurationError(
                    f"{option}: {path} is also an input file, which it would overwrite; name another file"
                )


def check_not_empty(log: BinlogFile) -> None:
    """Raise ``TruncatedError`` if what was read is too short for a binary log without events."""
    if (log.bytes_read or 0) < len(BINLOG_MAGIC):
        raise TruncatedError("the file is empty: no binary log, which begins with 4 bytes", log.file)


def _offset_or_place(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else text


def _key(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ConfigurationError("--key: the key is not hexadecimal; give 64 hexadecimal digits") from None


def _secret(text: str | None) -> str:
    """The secret. As for the server, ``FILE:path`` names the file that holds it."""
    if text is None or not text.startswith(_SECRET_FILE):
        return text or ""
    path = text.removeprefix(_SECRET_FILE)
    return utf8_text(read_whole(path)).rstrip("\r\n")
