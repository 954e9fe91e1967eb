"""What servers log, rendered as text, against the mysqlbinlog and mariadb-binlog of the same images.

Each workload fills a log file of its own; the tool in the container prints it, and we do. Equal must be every byte,
and with `--hexdump` the dumps, the `# at` lines, the header lines and the `###` lines, in order. The image of MySQL
5.6 has no tool: 9.7's reads that file.
"""

from __future__ import annotations

import io
import random
import re
import tarfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from replica.files.binlog_file import open_binlog
from replica.mysqlbinlog.event_text import TextRenderer, render_text
from replica.mysqlbinlog.values import quote_mysql
from tests.support.servers import Server

_ALL_LINES = re.compile(rb"")
# The tool writes LOAD DATA's file, and names it; we have the statement as it was.
_FILE = re.compile(rb"(LOAD DATA LOCAL INFILE )'[^']*'( REPLACE)? +INTO")
_DUMPS = re.compile(rb"# at \d|#\d{6} |###|#$|# +[0-9a-f]{1,8}  ?[|0-9a-f]|# Position|# +\|Timestamp|# Event")

_ALL = ("mysql:9.7", "mysql:5.6", "mariadb:10.11", "mariadb:11.8")
_MYSQL = _ALL[:2]
_MARIADB = _ALL[2:]
_LATEST = _ALL[:1]


@dataclass(frozen=True)
class Workload:
    """Statements to log; ``{file}`` is a file to load, ``{random values}`` stands for statements of the seed.

    ``before`` and ``after`` are settings of the server.
    """

    statements: str
    servers: tuple[str, ...] = _ALL
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    has_dumps: bool = True


_TYPES = [f"{name}({digits})" for name in ("TIME", "DATETIME", "TIMESTAMP") for digits in range(7)]
_MOMENTS = (
    ("-838:59:58.987654", "2038-01-18 23:59:58.123456"),
    ("838:59:58.000001", "1970-01-01 00:00:01.000001"),
    ("-00:00:00.1", "0000-00-00 00:00:00"),
    ("-01:02:03.999999", "2009-00-15 01:02:03"),
)


def _moments() -> str:
    columns = ", ".join(f"c{index} {kind} NULL" for index, kind in enumerate(_TYPES))
    statements = ["SET sql_mode = ''", f"CREATE TABLE moments (d DATE, y YEAR, {columns})"]
    for time, moment in _MOMENTS:
        values = [f"'{time}'"] * 7 + [f"'{moment}'"] * 14
        statements.append(f"INSERT INTO moments VALUES ('{moment[:10]}', 1999, {', '.join(values)})")
    return "; ".join([*statements, "INSERT INTO moments (y) VALUES (0), (2155), (NULL)"])


_SIGNS = ("{}", "{} UNSIGNED")
_INTEGERS = [
    sign.format(kind) for kind in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT") for sign in _SIGNS
]
_LIMITS = [limit for bits in (8, 16, 24, 32, 64) for limit in (-(1 << bits - 1), (1 << bits) - 1)]


def _numbers() -> str:
    columns = ", ".join(f"c{index} {kind}" for index, kind in enumerate(_INTEGERS))
    limits = ", ".join(map(str, _LIMITS))
    return f"""
        CREATE TABLE integers ({columns});
        INSERT INTO integers VALUES ({limits}), ({", ".join("0" * 10)}), ({", ".join(["NULL"] * 10)});
        UPDATE integers SET c0 = -1 WHERE c0 = 0;
        CREATE TABLE numbers (f FLOAT, d DOUBLE, m DECIMAL(65,30), n DECIMAL(10,0), o DECIMAL(5,5),
            p BIT(1), q BIT(13), r BIT(64));
        INSERT INTO numbers VALUES
            (1.1, 1.1, -12345678901234567890123456789012345.123456789012345678901234567890, -1234567890, 0.12345,
             1, 5461, 18446744073709551615),
            (1e30, 1e300, 0, 0, 0, 0, 0, 0), (-1e-30, -1.7976931348623157e308, 0.5, -1, -0.5, 1, 1, 1),
            (3.4e38, 2.2250738585072014e-308, 1, 1, -0.00001, 1, 1, 1), (123456.789, -0e0, 100, 1, 0, 1, 1, 1);
        DELETE FROM numbers LIMIT 2
    """


_BYTES = "x'" + bytes(range(256)).hex() + "'"
_ENUM = ", ".join(f"'e{index}'" for index in range(300))


def _members(bits: int) -> str:
    return ", ".join(f"'s{bit}'" for bit in range(bits))


_BITS = (3, 9, 17, 25, 33, 64)
_SETS = ", ".join(f"s{bits} SET({_members(bits)})" for bits in _BITS)
_STRINGS = f"""
    CREATE TABLE strings (a CHAR(10), b CHAR(255), c VARCHAR(10), d VARCHAR(300), e BINARY(4), f BINARY(255),
        g VARBINARY(5), h TINYTEXT, i TEXT, j MEDIUMTEXT, k LONGTEXT, l BLOB, m CHAR(9) CHARACTER SET latin1);
    SET @s = 'a''b"c\\\\d\\n\\r\\t\\b\\Z%s %_é€😀';
    INSERT INTO strings VALUES ('a', 'é', 'é€', 'x', x'00', x'0000', x'0001', @s, @s, @s, @s, {_BYTES}, 'é'),
        ('%s%d', '%', '%`', '%s', 'abc', '', '', '%%', '', '', '', '', ''),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE TABLE choices (a ENUM('x', 'y'), b ENUM({_ENUM}), {_SETS});
    INSERT INTO choices VALUES ('y', 'e299', 's0,s2', 's8', 's16,s1', 's24', 's32,s7', 's63,s0'),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), ('x', 'e0', '', '', '', '', '', '');
    CREATE TABLE `we``ird"t` (`a'b` INT, `c``d` VARCHAR(5)); INSERT INTO `we``ird"t` VALUES (1, 'x')
"""

_SHAPES = (
    "POINT(1 2)",
    "LINESTRING(0 0,1 1)",
    "POLYGON((0 0,0 1,1 1,0 0))",
    "MULTIPOINT(0 0,1 1)",
    "MULTILINESTRING((0 0,1 1),(2 2,3 3))",
    "MULTIPOLYGON(((0 0,0 1,1 1,0 0)))",
    "GEOMETRYCOLLECTION(POINT(1 2))",
)


def _geometry() -> str:
    rows = ", ".join(f"({number}, ST_GeomFromText('{shape}'))" for number, shape in enumerate(_SHAPES))
    return f"CREATE TABLE shapes (id INT, g GEOMETRY); INSERT INTO shapes VALUES {rows}, (99, NULL)"


_JSON = """
    CREATE TABLE documents (id INT PRIMARY KEY, j JSON, k JSON, v VECTOR(3), w VECTOR);
    INSERT INTO documents (id, j, v, w) VALUES
        (1, '{"a":1,"b":[1,2.5,null,true,"x\\\\ny\\'z"],"c":{"d":"é"}}', STRING_TO_VECTOR('[1,2.5,-3e10]'),
            STRING_TO_VECTOR('[1e-20]')),
        (2, '"str\\'"', NULL, NULL), (3, '12', NULL, NULL), (4, 'null', NULL, NULL), (7, NULL, NULL, NULL),
        (5, JSON_OBJECT('d', CAST('2024-01-02' AS DATE), 't', CAST('10:11:12.5' AS TIME(6)), 'dec',
            CAST(1.50 AS DECIMAL(10,2)), 'dt', CAST('2024-01-02 03:04:05.6' AS DATETIME(6)), 'b', x'0102ff'), NULL,
            NULL),
        (6, '[1.0, 1e100, 1e15, 123456789012345678, 18446744073709551615, -1, 0.1, 1e-7]', NULL, NULL);
    SET binlog_row_value_options = PARTIAL_JSON;
    UPDATE documents SET j = JSON_SET(j, '$.a', 2, '$.b[0]', 'new\\'s') WHERE id = 1;
    UPDATE documents SET j = JSON_REMOVE(j, '$.b[1]') WHERE id = 1;
    UPDATE documents SET j = JSON_SET(j, '$.z', JSON_OBJECT('q', JSON_ARRAY(1, 2))) WHERE id = 1;
    UPDATE documents SET j = JSON_REMOVE(JSON_REPLACE(JSON_SET(j, '$.y', 1, '$.x', 2.5), '$.a', NULL), '$.c')
        WHERE id = 1;
    UPDATE documents SET j = '{"whole": 1}' WHERE id = 1;
    UPDATE documents SET j = JSON_SET(j, '$.whole', true), id = 101 WHERE id = 1;
    UPDATE documents SET j = JSON_SET(j, '$.whole', CAST('2024-01-02' AS DATE)) WHERE id = 101;
    SET binlog_row_image = MINIMAL;
    UPDATE documents SET j = JSON_SET(j, '$.whole', 2.5) WHERE id = 101;
    UPDATE documents SET j = JSON_REMOVE(j, '$[0]'), k = '[]' WHERE id = 6
"""

_IMAGES = """
    CREATE TABLE images (id INT PRIMARY KEY, a INT, b TEXT, c BLOB NOT NULL, d INT DEFAULT 5);
    INSERT INTO images VALUES (1, 1, 'b', 'c', 1), (2, NULL, NULL, 'c', NULL), (3, 3, 'b', 'c', 3);
    SET binlog_row_image = 'MINIMAL';
    UPDATE images SET a = 2 WHERE id = 1; UPDATE images SET b = NULL; INSERT INTO images (id, c) VALUES (4, '');
    DELETE FROM images WHERE id = 4;
    SET binlog_row_image = 'NOBLOB';
    UPDATE images SET a = 3 WHERE id = 1; UPDATE images SET c = 'other' WHERE id = 1; DELETE FROM images WHERE id = 2
"""

# Rows events end at 8 KiB or so: one statement takes several, and several tables.
_MANY_EVENTS = """
    CREATE TABLE big (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(3000)); CREATE TABLE log (n INT);
    INSERT INTO big (a) VALUES (REPEAT('a', 3000)), (REPEAT('b', 3000)), (REPEAT('c', 3000));
    INSERT INTO big (a) SELECT a FROM big; INSERT INTO big (a) SELECT a FROM big;
    CREATE TRIGGER big_log AFTER UPDATE ON big FOR EACH ROW INSERT INTO log VALUES (NEW.id);
    UPDATE big SET a = CONCAT('x', SUBSTR(a, 2)); DELETE FROM big;
    CREATE TABLE parent (id INT PRIMARY KEY); CREATE TABLE child (id INT PRIMARY KEY, parent_id INT,
        FOREIGN KEY (parent_id) REFERENCES parent (id) ON DELETE CASCADE);
    INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (1, 1), (2, 1); DELETE FROM parent WHERE id = 1;
    SET foreign_key_checks = 0; INSERT INTO parent VALUES (20); SET foreign_key_checks = 1, unique_checks = 0;
    INSERT INTO parent VALUES (21)
"""

_TRANSACTIONS = """
    CREATE TABLE t (a INT PRIMARY KEY);
    BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2); ROLLBACK TO s; COMMIT;
    XA START 'x1', 'b', 7; INSERT INTO t VALUES (30); XA END 'x1', 'b', 7; XA PREPARE 'x1', 'b', 7;
    XA COMMIT 'x1', 'b', 7;
    XA START 'x2'; INSERT INTO t VALUES (31); XA END 'x2'; XA COMMIT 'x2' ONE PHASE;
    XA START 'x3'; INSERT INTO t VALUES (32); XA END 'x3'; XA PREPARE 'x3'; XA ROLLBACK 'x3'
"""

_STATEMENTS = """
    SET SESSION binlog_format = STATEMENT;
    SET @i = -5, @u = CAST(18446744073709551615 AS UNSIGNED), @r = 1.5e10, @d = CAST(-12.50 AS DECIMAL(10,2)),
        @s = 'it''s é', @n = NULL, @`we``ird` = 1;
    CREATE TABLE s (a BIGINT AUTO_INCREMENT PRIMARY KEY, b TEXT, c DOUBLE);
    INSERT INTO s (b, c) VALUES (@i, @r); INSERT INTO s (b) VALUES (@u), (@d), (@s), (@n), (@`we``ird`);
    INSERT INTO s (c) VALUES (RAND()); INSERT INTO s (b) SELECT LAST_INSERT_ID();
    SET TIMESTAMP = 1700000000.123456; INSERT INTO s (b) VALUES (NOW(6)); SET TIMESTAMP = DEFAULT;
    CREATE TABLE moments (t TIMESTAMP); CREATE TABLE more_moments (t TIMESTAMP);
    SET time_zone = '+01:00'; INSERT INTO s (b) VALUES (NOW()); SET lc_time_names = 'de_DE';
    INSERT INTO s (b) VALUES (DATE_FORMAT(NOW(), '%W')); SET NAMES latin1; INSERT INTO s (b) VALUES ('x');
    SET auto_increment_increment = 5, sql_auto_is_null = 1, sql_mode = 'ANSI'; INSERT INTO s (b) VALUES ('y');
    CREATE TEMPORARY TABLE passing (a INT);
    CREATE TABLE loaded (a INT, b VARCHAR(20));
    LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE loaded FIELDS TERMINATED BY ',' (a, b);
    CREATE TABLE `back``tick` (a INT); DROP TABLE `back``tick`
"""

_PARTITIONS = """
    CREATE TABLE parts (a INT PRIMARY KEY) PARTITION BY HASH (a) PARTITIONS 4;
    INSERT INTO parts VALUES (1), (2), (3); UPDATE parts SET a = 5 WHERE a = 2; DELETE FROM parts;
    SET binlog_rows_query_log_events = 1; INSERT INTO parts
    VALUES (10)
"""

_MARIADB_TYPES = """
    CREATE TABLE addresses (a UUID, b INET6, c INET4, d JSON);
    INSERT INTO addresses VALUES
        ('123e4567-e89b-12d3-a456-426655440000', '2001:db8::ff00:42:8329', '10.1.2.3', '[1]'),
        (NULL, NULL, NULL, NULL);
    CREATE TABLE squeezed (id INT, a TEXT COMPRESSED, b VARCHAR(1000) COMPRESSED, c BLOB COMPRESSED,
        d VARBINARY(100) COMPRESSED, e LONGTEXT COMPRESSED);
    INSERT INTO squeezed VALUES (1, REPEAT('ab', 500), REPEAT('x', 900), 'short', '', REPEAT('zz', 5000)),
        (2, NULL, NULL, NULL, NULL, NULL), (3, '', '', '', '', '');
    SET binlog_annotate_row_events = 1; INSERT INTO squeezed (id)
    VALUES

    (10);
    SET binlog_alter_two_phase = 1; ALTER TABLE squeezed ADD COLUMN z INT;
    SET skip_replication = 1; INSERT INTO squeezed (id) VALUES (11); SET skip_replication = 0;
    SET gtid_domain_id = 3; INSERT INTO squeezed (id) VALUES (12);
    SET gtid_domain_id = 0
"""

_COLLATIONS = """
    SET character_set_collations = 'utf8mb4=utf8mb4_bin,latin1=latin1_german2_ci,utf8mb3=uca1400_turkish_as_cs';
    CREATE TABLE collated (a CHAR(1) CHARACTER SET utf8mb4, b CHAR(1) CHARACTER SET latin1);
    SET NAMES latin1, time_zone = '+01:00';
    CREATE TABLE collated_too (a CHAR(1) CHARACTER SET utf8mb3, t TIMESTAMP DEFAULT NOW());
    SET character_set_collations = ''; CREATE TABLE plain (a CHAR(1) CHARACTER SET utf8mb4);
    CREATE TABLE without_characters (a INT)
"""

_MARIADB_COMPRESSED = """
    CREATE TABLE long_rows (id INT PRIMARY KEY, s TEXT); INSERT INTO long_rows VALUES (1, REPEAT('long', 1000));
    UPDATE long_rows SET s = REPEAT('more', 1000); DELETE FROM long_rows;
    SET SESSION binlog_format = STATEMENT; INSERT INTO long_rows VALUES (2, 'a long statement, a long statement')
"""

_METADATA = """
    CREATE TABLE described (a INT UNSIGNED, b ENUM('x', 'y'), c VARCHAR(3) CHARACTER SET latin1, PRIMARY KEY (a));
    INSERT INTO described VALUES (4294967295, 'y', 'a')
"""


def _random_values(seed: int) -> str:
    rng = random.Random(seed)
    rows = []
    for _ in range(300):
        number = rng.uniform(-1, 1) * 10.0 ** rng.randint(-37, 37)
        digits = rng.choice(["", "-"]) + str(rng.randrange(10**18))
        text = rng.randbytes(rng.randint(0, 40)).hex()
        rows.append(
            f"({number!r}, {number!r}, {digits[:-6] or 0}.{digits[-6:].lstrip('-')}, x'{text}', x'{text}')"
        )
    columns = "f FLOAT, d DOUBLE, m DECIMAL(30,6), a VARBINARY(60), b BLOB"
    return f"CREATE TABLE chances ({columns}); INSERT INTO chances VALUES {', '.join(rows)}"


WORKLOADS = {
    "numbers": Workload(_numbers()),
    "dates and times": Workload(_moments()),
    "strings": Workload(_STRINGS),
    "random values": Workload("{random values}"),
    "geometry": Workload(_geometry(), _MARIADB),
    "json and vectors": Workload(_JSON, _LATEST),
    "row images": Workload(_IMAGES),
    "many events": Workload(_MANY_EVENTS),
    "partitions": Workload(_PARTITIONS, _MYSQL),
    "transactions": Workload(_TRANSACTIONS),
    "statements": Workload(
        _STATEMENTS, before=("SET GLOBAL local_infile = 1",), after=("SET GLOBAL local_infile = 0",)
    ),
    "tagged GTIDs": Workload(
        "CREATE TABLE t (a INT); SET gtid_next = 'AUTOMATIC:mytag'; INSERT INTO t VALUES (1)", _LATEST
    ),
    "compressed transactions": Workload(
        f"SET binlog_transaction_compression = ON; {_STRINGS}; {_IMAGES};"
        "BEGIN; INSERT INTO images (id, c) VALUES (9, 'x'); DELETE FROM images; COMMIT",
        _LATEST,
    ),
    "full metadata": Workload(
        _METADATA,
        ("mysql:9.7", *_MARIADB),
        before=("SET GLOBAL binlog_row_metadata = 'FULL'",),
        after=("SET GLOBAL binlog_row_metadata = DEFAULT",),
    ),
    "minimal metadata": Workload(
        _METADATA,
        _MARIADB,
        before=("SET GLOBAL binlog_row_metadata = 'MINIMAL'",),
        after=("SET GLOBAL binlog_row_metadata = DEFAULT",),
    ),
    "no checksums": Workload(
        _TRANSACTIONS,
        before=("SET GLOBAL binlog_checksum = 'NONE'",),
        after=("SET GLOBAL binlog_checksum = DEFAULT",),
    ),
    "MariaDB's types": Workload(_MARIADB_TYPES, _MARIADB),
    "default collations": Workload(_COLLATIONS, _ALL[-1:]),
    # Of compressed rows the tool dumps what they are uncompressed; we dump what stands in the file.
    "MariaDB's compression": Workload(
        _MARIADB_COMPRESSED,
        _MARIADB,
        before=("SET GLOBAL log_bin_compress = 1, log_bin_compress_min_len = 10",),
        after=("SET GLOBAL log_bin_compress = 0, log_bin_compress_min_len = DEFAULT",),
        has_dumps=False,
    ),
}
_CASES = [
    pytest.param(server, workload, id=f"{server.replace(':', '-')}-{name}")
    for name, workload in WORKLOADS.items()
    for server in workload.servers
]


def _log(server: Server, workload: Workload, schema: str, tmp_path: Path, seed: int) -> str:
    """Run a workload; returns the path, in the container, of the log that holds nothing else."""
    load_file = tmp_path / "rows.csv"
    load_file.write_text("".join(f"{number},row {number}\n" for number in range(2000)))
    for statement in workload.before:
        server.query(statement)
    try:
        with server.connect(local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {schema}")
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute(server.log_status)
            status = cursor.fetchone()
            assert status is not None
            text = workload.statements.replace("{random values}", _random_values(seed))
            for statement in text.split(";"):
                if statement.strip():
                    cursor.execute(statement.replace("{file}", str(load_file)))
    finally:
        for statement in workload.after:
            server.query(statement)
    server.query("FLUSH BINARY LOGS")
    return f"{server.query('SELECT @@datadir')[0][0]}{status[0]}"


def _tool_output(server: Server, *arguments: str) -> bytes:
    tool = "mysqlbinlog" if server.family == "mysql" else "mariadb-binlog"
    return server.exec("env", "TZ=UTC", tool, "-vv", "--base64-output=decode-rows", *arguments)


def _rendered(*logs: bytes, hexdump: bool = False) -> bytes:
    output = io.BytesIO()
    renderer = TextRenderer(output, hexdump)
    with open_binlog([io.BytesIO(log) for log in logs], cells=renderer.cells) as events:
        render_text(events.raw_events(), renderer)
    return output.getvalue()


def _copied(log: bytes, server: Server) -> str:
    """The path of a copy of ``log`` on another server."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("copied.binlog")
        member.size, member.mode = len(log), 0o644
        tar.addfile(member, io.BytesIO(log))
    server.container.get_wrapped_container().put_archive("/tmp", archive.getvalue())
    return "/tmp/copied.binlog"


def _different(
    ours: bytes, theirs: bytes, compared: re.Pattern[bytes]
) -> tuple[int, list[tuple[bytes | None, ...]]]:
    texts = [_FILE.sub(rb"\1''\2 INTO", text) for text in (ours, theirs)]
    lines = [[line for line in text.split(b"\n") if compared.match(line)] for text in texts]
    pairs = list(zip_longest(*lines))
    return len(pairs), [pair for pair in pairs if pair[0] != pair[1]]


@pytest.mark.parametrize(("server", "workload"), _CASES, indirect=["server"])
def test_the_text_is_the_tools(
    seed: int,
    server: Server,
    workload: Workload,
    schema: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    path = _log(server, workload, schema, tmp_path, seed)
    log = server.read_file(path)
    if server.name == "mysql:5.6":
        server = request.getfixturevalue("mysql97")
        path = _copied(log, server)
    count, different = _different(_rendered(log), _tool_output(server, path), _ALL_LINES)
    assert different[:3] == []
    assert count > 4
    print(f"{count} lines compared")
    if workload.has_dumps:
        count, different = _different(
            _rendered(log, hexdump=True), _tool_output(server, path, "--hexdump"), _DUMPS
        )
        assert different[:3] == []
        print(f"{count} lines compared with dumps")


@pytest.mark.parametrize("server", ["mysql:9.7", *_MARIADB], indirect=True)
def test_several_files(seed: int, server: Server, schema: str, tmp_path: Path) -> None:
    """An XA transaction is open at the end of the first, and MariaDB's tool sets the session anew for each."""
    paths = [_log(server, Workload(text), schema, tmp_path, seed) for text in (_TRANSACTIONS, _METADATA)]
    ours = _rendered(*(server.read_file(path) for path in paths))
    assert _different(ours, _tool_output(server, paths[0], paths[1]), _ALL_LINES)[1] == []


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_geometry_is_printed_where_the_tool_gives_up(
    seed: int, server: Server, schema: str, tmp_path: Path
) -> None:
    """mysqlbinlog 9.7 drops the rest of an event at its first GEOMETRY; we print it as strings are printed."""
    path = _log(server, Workload(_geometry()), schema, tmp_path, seed)
    assert b"@2=!! Don't know how to handle column type=255 meta=4 (0004)\n" in _tool_output(server, path)
    text = _rendered(server.read_file(path))
    rows = server.query(f"SELECT id, HEX(g) FROM {schema}.shapes ORDER BY id")
    for number, stored in rows[:-1]:
        value = quote_mysql(bytes.fromhex(stored))
        assert b"###   @1=%d /* INT meta=0 nullable=1 is_null=0 */\n###   @2=%b /*" % (number, value) in text
    assert b"###   @2=NULL /* GEOMETRY meta=4 nullable=1 is_null=1 */\n" in text
    assert len(rows) == len(_SHAPES) + 1
