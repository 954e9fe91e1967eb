"""The options of ``spark.read.format("mysql-binlog")``: strings in, one frozen ``SourceOptions`` out.

Every mistake raises a ``ConfigurationError`` that names the option. This module opens no connection and reads no file
but a password file; no repr shows a secret. ``SourceOptions`` says what each option means.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

from protocol.constants import MAX_EVENT_SIZE
from protocol.errors import ConfigurationError
from protocol.gtid import parse_gtid_set
from protocol.records import field, record

from ..arrow import Images
from ..config.selection import (
    SELECTION_READERS,
    named,
    near_options,
    one_of,
    parse_time,
    read_boolean,
    read_table,
    read_table_text,
    table_patterns,
    whole_number,
)
from ..config.table_filter import exact_pattern
from ..files.log_files import read_whole
from ..spool.live_log import SPOOL_BYTES
from ..spool.offsets import parse_offset
from ..spool.pieces import ReadSettings
from .changes import OnStatement
from .envelope import RowFormat
from .read_task import SchemaMode
from .table_mode import OnSchemaChange

_UNITS: Final = MappingProxyType({"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40})
_SIZE: Final = re.compile(r"\s*([0-9]{1,15})\s*(?:([kmgt])i?b?|(b)?)\s*", re.IGNORECASE)
_LARGEST: Final = 1 << 62


@record(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query reads, and how. Option names are in brackets where they differ from the field.

    What:
        path: binlog files: a path, a pattern, a folder (all numbered files in it) or an ``.index`` file.
        tables, exclude_tables [includeTables, excludeTables]: patterns such as ``shop.*``, separated by commas.
        mode [schemaMode]: ``envelope`` (default); ``table``, with ``table`` = ``shop.orders``; ``packed`` and
            ``packed_envelope``, for jobs.
        include_ddl [includeDdl]: true: statements, and the ends of XA transactions, are rows of the envelope, too.
    How:
        row_format [rowFormat]: the type of the envelope's rows: ``variant`` (default) or ``json``.
        images: in table mode ``after`` (default), or ``both``, which adds the before image and what goes with it.
        on_schema_change [onSchemaChange]: in table mode, when the table's columns change: ``fail`` (default);
            ``ignore`` (added columns are left out, missing ones are null); ``null`` (also values of another type).
        on_statement [onStatement]: when a statement changed rows without rows events (binlog_format=STATEMENT):
            ``fail`` (default) or ``ignore`` it.
        max_partition_bytes [maxPartitionBytes]: the approximate size of a partition, ``128m`` (default).
        source_name [sourceName]: a name for the source, which adds the column ``source_name`` (in table mode
            ``_source_name``): for several sources in one target.
        settings: ``verifyChecksum``; ``maxEventBytes``, a size as of ``max_event_bytes`` of ``replica.connect``: a
            larger event is an error before it takes memory; ``storageOptions`` (a JSON object with deltalake's names
            for S3, such as AWS_ENDPOINT_URL; the environment has what it leaves out); for encrypted files
            ``keyring`` (MySQL), or ``keyFile``, ``keyFileSecretEnv`` and ``keyFileIterations`` (MariaDB), paths that
            executors see, too.
    A live source:
        connection: these options of ``replica.connect``: ``host``, ``port``, ``user``, ``unixSocket``, ``tls``,
            ``tlsCa``, ``tlsCert``, ``tlsKey``, ``serverPublicKeyPath``, ``getServerPublicKey``,
            ``enableCleartextPlugin``, ``heartbeat``, ``connectTimeout``, ``serverId``, ``onSchemaMismatch``
            (``error``; ``positional``: columns whose names are lost are ``@1``, ``@2``...). The password is in
            ``password``, in the environment variable that [passwordEnv] names or in the file [passwordFile].
        starting: where a new query begins: [startingOffsets] ``earliest``, ``latest`` (default, also of a batch) or
            an offset's JSON; [startingTimestamp] a time in ISO 8601 with its zone; [startingGtidSet].
        ending [endingOffsets]: where a batch ends: ``latest`` (default) or an offset's JSON.
        spool_dir [spoolDir]: the folder in which a stream keeps events until Spark has committed them. A batch makes
            a folder within it, or a temporary one, and does not delete it. As a URI (``file:///mnt/shared/spool``,
            ``s3://bucket/spool``) it is a folder that all machines see: it gets what is too large to be sent with
            the tasks, and the driver keeps events in [spoolCache]. The spool also has the columns of the tables at
            each place, for a log without names; a URI has a copy of them, for a driver on another machine. Without
            them the tables are read anew, and what DDL took away before has no names.
        spool_cache [spoolCache]: a folder of the driver, if ``spoolDir`` is a URI. Default: a temporary one.
        shared_folders [sharedFolders]: whether executors see the driver's files, under the same paths. Default: with
            a local master only.
        max_rows, max_bytes [maxRowsPerTrigger, maxBytesPerTrigger]: the approximate size of a micro-batch.
        max_spool_bytes [maxSpoolBytes]: a stream stops receiving while the spool has so many bytes that Spark has not
            committed: ``1g`` (default). The connection stays.
        snapshot: ``only``: the rows of ``table`` as they are now, without the log (``replica.spark.table_reader``),
            on the server of an offset's JSON in [startingOffsets], else on the one that the driver reaches first;
            ``initial``: a new stream begins with the rows of its tables, with the op ``r``, before the changes
            (``replica.spark.initial_copy``). Executors log in themselves, so the password is in [passwordEnv] or
            [passwordFile], on each machine.
        snapshot_parallelism [snapshotParallelism]: how many connections read the table at most: 4 (default).
        fail_on_data_loss [failOnDataLoss]: false: when the source has purged events that the query needs, write a row
            with the op ``gap`` and read on after them.
    """

    path: str | None = None
    mode: SchemaMode = "envelope"
    table: str | None = None
    row_format: RowFormat = "variant"
    images: Images = "after"
    include_ddl: bool = False
    on_schema_change: OnSchemaChange = "fail"
    on_statement: OnStatement = "fail"
    max_partition_bytes: int = 128 << 20
    settings: ReadSettings = field(default_factory=ReadSettings)
    connection: Mapping[str, str] = field(default_factory=dict, repr=False)
    starting: Mapping[str, str] = field(default_factory=dict)
    ending: str = "latest"
    spool_dir: str | None = None
    spool_cache: str | None = None
    shared_folders: bool | None = None
    max_spool_bytes: int = SPOOL_BYTES
    source_name: str | None = None
    max_rows: int | None = None
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    snapshot: Literal["only", "initial"] | None = None
    snapshot_parallelism: int = 4

    @property
    def is_live(self) -> bool:
        """Whether the query reads a live source, not files."""
        return self.path is None


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options that Spark passes. Case does not matter in their names.

    Raises ``ConfigurationError``, which names the option.
    """
    by_key = {name.lower(): (name, value) for name, value in given.items()}
    unknown = [name for key, (name, _) in sorted(by_key.items()) if key not in _NAMES]
    if unknown:
        told = ", ".join(f"{name}{near_options(name, _NAMES.values())}" for name in unknown)
        raise ConfigurationError(
            f"mysql-binlog: unknown option {told}; the options are {', '.join(sorted(_NAMES.values()))}"
        )
    values = {_NAMES[name]: value for name, (_, value) in by_key.items()}
    read = {
        _FIELDS[name][0]: _FIELDS[name][1](name, value) for name, value in values.items() if name in _FIELDS
    }
    options = SourceOptions(
        **read,  # type: ignore[arg-type]
        settings=_settings(values),
        connection=_connection(values),
        starting={name: values[name] for name in _STARTING if name in values},
    )
    _check(options, values)
    return options


def parse_size(name: str, text: str) -> int:
    """A number of bytes from a size as Spark writes it: ``134217728``, ``128m``, ``128MB``."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ConfigurationError(f"{name}: {text!r} is not a size; give one such as 128m")
    size = int(found[1]) * _UNITS[(found[2] or found[3] or "").lower()]
    if not 1 <= size <= _LARGEST:
        raise ConfigurationError(f"{name}: the size must be from 1 byte to 4 EiB, not {text!r}")
    return size


def parse_storage(text: str) -> dict[str, str]:
    """Storage options from their JSON text. Raises ``ConfigurationError``, which shows none of it."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigurationError(
            'storageOptions: must be a JSON object with texts, such as {"AWS_REGION": "eu-west-1"}'
        )
    return found


def _check(options: SourceOptions, values: Mapping[str, str]) -> None:
    live = [
        name
        for name in (*CONNECTION, *_STARTING, "endingOffsets", "password", "passwordEnv", "passwordFile")
        if name in values
    ]
    if options.path is not None and live:
        raise ConfigurationError(
            f"path: {', '.join(live)} cannot be given with path: they are for a live source, and path reads files"
        )
    if options.path is None and "user" not in options.connection:
        raise ConfigurationError("path: give the binlog files to read, or the host and user of a live source")
    if options.snapshot is not None:
        _check_login(values)
    if options.snapshot == "initial":
        _check_initial(options)
    if options.snapshot == "only":
        _check_snapshot(options, values)
    elif options.mode == "table":
        if options.table is None:
            raise ConfigurationError("table: schemaMode=table needs table=schema.name")
        if {"includeTables", "excludeTables", "includeDdl", "rowFormat"} & values.keys():
            raise ConfigurationError(
                "schemaMode: with schemaMode=table the options includeTables, excludeTables, includeDdl and "
                "rowFormat have no effect: leave them out"
            )
    elif options.table is not None or options.images == "both":
        raise ConfigurationError("table: the options table and images need schemaMode=table")
    if options.source_name is not None and options.mode == "packed":
        raise ConfigurationError("sourceName: mirror and history keep one source in a target: leave it out")
    if options.ending == "earliest":
        raise ConfigurationError("endingOffsets: must be latest or an offset's JSON, not 'earliest'")
    if len(options.starting) > 1:
        raise ConfigurationError(f"{', '.join(options.starting)}: give only one of them")
    for name, text in {**options.starting, "endingOffsets": options.ending}.items():
        _PLACES[name](name, text)


#: Options that have no effect where a table is read without the log.
_OF_THE_LOG: Final = frozenset(
    {
        *(
            "path",
            "schemaMode",
            "images",
            "rowFormat",
            "includeDdl",
            "onSchemaChange",
            "onStatement",
            "sourceName",
        ),
        *("includeTables", "excludeTables", "startingOffsets", "startingTimestamp", "startingGtidSet"),
        *("endingOffsets", "spoolDir", "spoolCache", "maxRowsPerTrigger", "maxBytesPerTrigger"),
    }
)


def _check_snapshot(options: SourceOptions, values: Mapping[str, str]) -> None:
    if options.table is None:
        raise ConfigurationError("table: snapshot=only needs table=schema.name")
    useless = _OF_THE_LOG & values.keys()
    if values.get("startingOffsets", "").lstrip().startswith("{"):
        # The offset that ``read_table`` passes: the rows must come from the server of this log.
        useless -= {"startingOffsets"}
    if useless:
        raise ConfigurationError(f"snapshot: it reads no log, so leave out {', '.join(sorted(useless))}")


def _check_initial(options: SourceOptions) -> None:
    if not options.is_live:
        raise ConfigurationError("snapshot: files have no tables to copy: leave path out")
    if options.mode == "packed":
        raise ConfigurationError("snapshot: mirror and history copy their tables themselves: leave it out")
    if options.starting:
        raise ConfigurationError(
            f"{', '.join(options.starting)}: with snapshot=initial the log follows the copy: leave it out"
        )


def _check_login(values: Mapping[str, str]) -> None:
    if "password" in values:
        raise ConfigurationError(
            "password: executors log in themselves, and a plan must not have the password: give passwordEnv or "
            "passwordFile, which each machine has"
        )


def _settings(values: Mapping[str, str]) -> ReadSettings:
    is_typed = values.get("schemaMode", "").lower() == "table" or values.get("snapshot", "").lower() == "only"
    table = values.get("table") if is_typed else None
    secret_name = values.get("keyFileSecretEnv")
    return ReadSettings(
        tables=table_patterns("includeTables", values.get("includeTables", "*"))
        if table is None
        else (exact_pattern(*read_table("table", table)),),
        exclude_tables=table_patterns("excludeTables", values["excludeTables"])
        if "excludeTables" in values
        else (),
        verify_checksum=read_boolean("verifyChecksum", values.get("verifyChecksum", "true")),
        max_event_bytes=_event_limit(values),
        keyring=values.get("keyring"),
        key_file=values.get("keyFile"),
        key_file_secret="" if secret_name is None else _environment("keyFileSecretEnv", secret_name),
        key_file_iterations=whole_number(0)("keyFileIterations", values.get("keyFileIterations", "0")),
        storage=parse_storage(values.get("storageOptions", "{}")),
    )


def _event_limit(values: Mapping[str, str]) -> int:
    if "maxEventBytes" not in values:
        return MAX_EVENT_SIZE
    size = SELECTION_READERS["max_event_bytes"](
        "maxEventBytes", parse_size("maxEventBytes", values["maxEventBytes"])
    )
    assert isinstance(size, int)
    return size


def _connection(values: Mapping[str, str]) -> dict[str, str]:
    found = {option: values[name] for name, option in CONNECTION.items() if name in values}
    given = [name for name in ("password", "passwordEnv", "passwordFile") if name in values]
    if len(given) > 1:
        raise ConfigurationError(f"{', '.join(given)}: give the password by one of them only")
    if "password" in values:
        found["password"] = values["password"]
    elif "passwordEnv" in values:
        found["password"] = _environment("passwordEnv", values["passwordEnv"])
    elif "passwordFile" in values:
        found["password"] = _password(values["passwordFile"])
    return found


def _password(path: str) -> str:
    try:
        return named("passwordFile", read_whole, path).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        # The text of the UnicodeDecodeError shows a part of the password.
        raise ConfigurationError(f"passwordFile: {path} is not UTF-8 text") from None


def _environment(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        # Executors that log in to copy tables read it, too.
        raise ConfigurationError(
            f"{name}: the environment variable {variable!r} is not set in this process of Spark: the driver needs "
            f"it, and so does each executor that copies tables (spark.executorEnv.{variable})"
        )
    return value


def _text(name: str, text: str) -> str:
    if not text:
        raise ConfigurationError(f"{name}: the value is empty")
    return text


def _choice(*choices: str) -> Callable[[str, str], object]:
    read = one_of(*choices)
    return lambda name, text: read(name, text.lower())


def _offset(name: str, text: str) -> object:
    return parse_offset(name, text.strip())


# Option -> a check of the place that it names; the source finds the place later.
_PLACES: Final[Mapping[str, Callable[[str, str], object]]] = MappingProxyType(
    {
        "startingOffsets": _offset,
        "startingTimestamp": lambda name, text: named(name, parse_time, text),
        "startingGtidSet": lambda name, text: named(name, parse_gtid_set, text),
        "endingOffsets": _offset,
    }
)
# Option -> field of SourceOptions, and the function that reads its value.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = MappingProxyType(
    {
        "path": ("path", _text),
        "schemaMode": ("mode", _choice("envelope", "table", "packed", "packed_envelope")),
        "table": ("table", read_table_text),
        "rowFormat": ("row_format", _choice("variant", "json")),
        "images": ("images", _choice("after", "both")),
        "includeDdl": ("include_ddl", read_boolean),
        "onSchemaChange": ("on_schema_change", _choice("fail", "ignore", "null")),
        "onStatement": ("on_statement", _choice("fail", "ignore")),
        "maxPartitionBytes": ("max_partition_bytes", parse_size),
        "endingOffsets": ("ending", _text),
        "spoolDir": ("spool_dir", _text),
        "spoolCache": ("spool_cache", _text),
        "sharedFolders": ("shared_folders", read_boolean),
        "maxSpoolBytes": ("max_spool_bytes", parse_size),
        "sourceName": ("source_name", _text),
        "maxRowsPerTrigger": ("max_rows", whole_number(1)),
        "maxBytesPerTrigger": ("max_bytes", parse_size),
        "failOnDataLoss": ("fail_on_data_loss", read_boolean),
        "snapshot": ("snapshot", _choice("only", "initial")),
        "snapshotParallelism": ("snapshot_parallelism", whole_number(1, 64)),
    }
)
#: Option -> option of ``replica.connect``.
CONNECTION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "host": "host",
        "port": "port",
        "user": "user",
        "unixSocket": "unix_socket",
        "tls": "tls",
        "tlsCa": "tls_ca",
        "tlsCert": "tls_cert",
        "tlsKey": "tls_key",
        "serverPublicKeyPath": "server_public_key_path",
        "getServerPublicKey": "get_server_public_key",
        "enableCleartextPlugin": "enable_cleartext_plugin",
        "heartbeat": "heartbeat",
        "connectTimeout": "connect_timeout",
        "serverId": "server_id",
        "onSchemaMismatch": "on_schema_mismatch",
    }
)
_STARTING: Final = ("startingOffsets", "startingTimestamp", "startingGtidSet")
_OTHERS: Final = (
    *("includeTables", "excludeTables", "verifyChecksum", "maxEventBytes", "keyring", "keyFile"),
    *("keyFileSecretEnv", "keyFileIterations", "storageOptions", "password", "passwordEnv", "passwordFile"),
)
_NAMES: Final = MappingProxyType(
    {name.lower(): name for name in (*_FIELDS, *CONNECTION, *_STARTING, *_OTHERS)}
)
