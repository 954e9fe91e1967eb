"""Random DDL on a few tables: statements of every clause that changes a shape, in many spellings.

``RandomDdl.statement`` writes the next one, about the tables that a server has at that moment. Many are refused: a
key over a column that is too long, a name that is taken. What the server accepts is the test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from replica.schemas.catalog import Catalog
from replica.schemas.shape import ColumnShape, Shape
from replica.sql.token_reader import TableName

CHARSETS = (
    "utf8mb4",
    "utf8",
    "latin1",
    "ascii",
    "cp1251",
    "greek",
    "gbk",
    "ujis",
    "binary",
    "latin2",
    "koi8r",
)
WIDE = ("ucs2", "utf16", "utf32")
COLLATIONS = ("utf8mb4_bin", "latin1_swedish_ci", "utf8_unicode_ci", "ucs2_bin", "binary", "gbk_bin")
MODES = ("", "", "", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "REAL_AS_FLOAT", "STRICT_ALL_TABLES", "ANSI")
NAMES = (
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "Id",
    "x y",
    "sélect",
    "order",
    "k`q",
    "période",
    "COLUMN",
    "1st",
    "a.b",
    "日本",
)
LABELS = ("a", "b ", "it's", "x,y)", "back\\slash", "", "(", "Z", 'q"q', "new\nline", "tab\t")
INTEGERS = (
    "TINYINT",
    "SMALLINT",
    "MEDIUMINT",
    "INT",
    "INTEGER",
    "BIGINT",
    "INT4",
    "INT1",
    "BOOL",
    "MIDDLEINT",
)
KEYS = (
    "PRIMARY KEY",
    "CONSTRAINT PRIMARY KEY",
    "UNIQUE",
    "UNIQUE KEY",
    "UNIQUE INDEX",
    "CONSTRAINT {} UNIQUE",
    "KEY",
    "INDEX",
)
MOST_COLUMNS = 12

Maker = Callable[[], str]


class RandomDdl:
    """``schemas`` are two schemas; ``tables`` the names that tables have in them.

    ``has_known_shapes``: the log tells the shapes that all statements make.
    """

    has_known_shapes = True

    def __init__(
        self, rng: random.Random, schemas: Sequence[str], *, mariadb: bool, version: tuple[int, ...]
    ) -> None:
        self.rng = rng
        self.schemas = schemas
        self.tables = ["t1", "t2", "t3", "t4", "t5"]
        self.mariadb = mariadb
        self.version = version
        self.is_old = not mariadb and version < (8,)
        self.mode = ""
        self.is_alone = True
        self.catalog = Catalog()

    # Words.

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def maybe(self, text: str, chance: float = 0.5) -> str:
        return text if self.rng.random() < chance else ""

    def name(self, text: str) -> str:
        if "ANSI" in self.mode and self.rng.random() < 0.5:
            return '"' + text.replace('"', '""') + '"'
        plain = (
            text.isascii()
            and text.isalnum()
            and not text[0].isdigit()
            and text.upper() not in ("ORDER", "COLUMN")
        )
        if plain and self.rng.random() < 0.6:
            return self.pick(text, text, text.upper() if self.rng.random() < 0.2 else text)
        return "`" + text.replace("`", "``") + "`"

    def text(self, value: str) -> str:
        if "NO_BACKSLASH" not in self.mode:
            value = value.replace("\\", "\\\\")
            if self.rng.random() < 0.3:
                value = value.replace("'", "\\'").replace("\n", "\\n")
        if "ANSI" not in self.mode and self.rng.random() < 0.3:
            return '"' + value.replace('"', '""').replace("\\'", "'") + '"'
        return "'" + value.replace("\\'", "\0").replace("'", "''").replace("\0", "\\'") + "'"

    def table_name(self, table: TableName) -> str:
        # The first schema is the session's own.
        if table.schema == self.schemas[0] and self.rng.random() < 0.6:
            return self.name(table.name)
        return f"{self.name(table.schema)}{self.pick('.', '.', ' . ')}{self.name(table.name)}"

    def noise(self, sql: str) -> str:
        """Comments and letter case that change nothing."""
        if self.rng.random() < 0.15:
            sql = self.pick("/* ALTER TABLE t1 DROP a; */ ", "-- x\n", "# it's\n", "/*!40101 */ ") + sql
        if self.rng.random() < 0.1:
            sql += self.pick(" /* generated */", " -- end", ";", "/*!99999 DROP */")
        return sql

    # Columns.

    def length(self, most: int) -> int:
        return self.rng.choice([1, 2, 5, 10, self.rng.randint(1, most)])

    def charset(self) -> str:
        roll = self.rng.random()
        if roll < 0.45:
            return ""
        if roll < 0.75:
            word = self.pick("CHARACTER SET", "CHARSET", "CHARACTER  SET")
            charset = self.pick(*CHARSETS)
            return f" {word} {self.pick(charset, self.text(charset))}"
        if roll < 0.9:
            return f" COLLATE {self.pick(*COLLATIONS)}"
        return self.pick(" ASCII", " UNICODE", " BINARY", " BYTE", " BINARY CHARSET latin1")

    def labels(self) -> str:
        count = self.rng.randint(1, 4)
        labels = [self.text(label) for label in self.rng.sample(LABELS, count) if "," not in label]
        return ", ".join(labels or ["'a'"])

    def type(self) -> str:
        integer = self.pick(*INTEGERS)
        decimal = self.pick("DECIMAL", "DEC", "NUMERIC", "FIXED")
        floating = self.pick(
            "FLOAT", "DOUBLE", "REAL", "DOUBLE PRECISION", "FLOAT(10)", "FLOAT(30)", "FLOAT8"
        )
        varying = self.pick("VARCHAR", "CHARACTER VARYING", "CHAR VARYING")
        national = self.pick("NCHAR", "NATIONAL CHAR", "NVARCHAR", "NATIONAL VARCHAR", "NCHAR VARCHAR")
        text = self.pick(
            "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "LONG VARCHAR", f"TEXT({self.length(300)})"
        )
        sign = self.pick("", "", " UNSIGNED", " ZEROFILL", " UNSIGNED ZEROFILL")
        digits = self.rng.randint(1, 30)
        fraction = self.pick("", "", "(0)", "(3)", "(6)")
        makers = [
            (lambda: integer + ("" if integer == "BOOL" else self.maybe(f"({digits})", 0.3) + sign)),
            (lambda: decimal + self.pick("", f"({digits})", f"({digits + 5}, {digits // 2})") + sign),
            (lambda: floating + sign),
            (lambda: self.pick("BIT", f"BIT({self.length(64)})")),
            (lambda: self.pick("DATE", "YEAR", "YEAR(4)")),
            (lambda: self.pick("TIME", "DATETIME", "TIMESTAMP") + fraction),
            (lambda: f"{varying}({self.length(60)}){self.charset()}"),
            (lambda: f"CHAR{self.pick('', f'({self.length(60)})')}{self.charset()}"),
            (lambda: f"{national}({self.length(60)})"),
            (lambda: text + self.charset()),
            (
                lambda: self.pick(
                    "TINYBLOB", "BLOB", "LONGBLOB", "LONG VARBINARY", f"BLOB({self.length(300)})"
                )
            ),
            (lambda: self.pick("BINARY", "VARBINARY") + f"({self.length(60)})"),
            (lambda: f"{self.pick('ENUM', 'SET')} ({self.labels()}){self.charset()}"),
        ]
        if not self.is_old:
            makers += [lambda: "JSON", lambda: f"VECTOR({self.length(9)})"]
        if self.mariadb:
            makers += [
                lambda: self.pick("UUID", "INET4", "INET6"),
                lambda: self.pick("TEXT", "VARCHAR(20)", "BLOB") + " COMPRESSED",
            ]
        return self.rng.choice(makers)()

    def definition(self) -> str:
        kind = self.type()
        attributes = [self.pick("", "", "NULL", "NOT NULL", "NOT NULL", "DEFAULT NULL")]
        if not self.is_old and self.rng.random() < 0.1:
            stored = self.pick("VIRTUAL", "STORED", "", "PERSISTENT" if self.mariadb else "")
            always = self.pick("GENERATED ALWAYS ", "")
            return f"{kind} {always}AS (NULL) {stored}"
        if not self.is_old and self.rng.random() < 0.1 and attributes[0] != "NOT NULL":
            attributes.append("INVISIBLE")
        if self.rng.random() < 0.15:
            attributes.append(f"COMMENT {self.text(self.pick('NOT NULL, DROP b', 'it(s', 'x'))}")
        if self.rng.random() < 0.06:
            attributes.append(self.pick("UNIQUE", "UNIQUE KEY", "PRIMARY KEY"))
        self.rng.shuffle(attributes)
        return f"{kind} {' '.join(attributes)}"

    def new_name(self, taken: Sequence[str] = ()) -> str:
        free = [name for name in NAMES if name.lower() not in {other.lower() for other in taken}]
        return self.rng.choice(free or [f"n{self.rng.randint(1, 999)}"])

    # CREATE TABLE.

    def create_table(self) -> str:
        table = self.any_table()
        # Keys over geometries are left out: what becomes of them under ALTER TABLE is told by no witness.
        replace = self.maybe("OR REPLACE ", 0.3) if self.mariadb else ""
        head = f"CREATE {replace}TABLE {self.maybe('IF NOT EXISTS ', 0.2)}"
        if table in self.catalog.tables and "IF NOT" not in head and "OR REPLACE" not in head:
            return self.alter_table()
        known = [name for name in self.catalog.tables if name != table]
        if known and self.rng.random() < 0.15:
            like = f"LIKE {self.table_name(self.rng.choice(known))}"
            return f"{head}{self.table_name(table)} {self.pick(like, f'({like})')}"
        # In mode ANSI servers log such a statement without the table's character set.
        if self.rng.random() < 0.05 and not (self.has_known_shapes and self.mode == "ANSI"):
            return f"{head}{self.table_name(table)} SELECT 1 AS a, 'x' AS b, NOW(3) AS c"
        names: list[str] = []
        for _ in range(self.rng.randint(1, 7)):
            names.append(self.new_name(names))
        items = [f"{self.name(name)} {self.definition()}" for name in names]
        for _ in range(self.rng.choice([0, 1, 1, 2, 3])):
            items.insert(self.rng.randint(0, len(items)), self.key(names))
        return f"{head}{self.table_name(table)} ({', '.join(items)}){self.table_options()}"

    def table_options(self) -> str:
        options = [self.pick("", "", "ENGINE=InnoDB", "ENGINE = MyISAM", "engine memory")]
        if self.rng.random() < 0.4:
            default, equals = self.maybe("DEFAULT "), self.pick("=", " = ", " ")
            options.append(
                f"{default}{self.pick('CHARSET', 'CHARACTER SET')}{equals}{self.pick(*CHARSETS, *WIDE)}"
            )
        elif self.rng.random() < 0.1:
            options.append(f"COLLATE={self.pick(*COLLATIONS)}")
        if self.rng.random() < 0.2:
            options.append(f"COMMENT={self.text('it(s, x')}")
        if self.rng.random() < 0.2:
            options.append(self.pick("AUTO_INCREMENT = 5", "ROW_FORMAT=DYNAMIC", "MAX_ROWS 10", "CHECKSUM=1"))
        self.rng.shuffle(options)
        text = " " + " ".join(options)
        if self.mariadb and self.rng.random() < 0.12:
            text += " WITH SYSTEM VERSIONING"
        return text

    def key(self, names: Sequence[str]) -> str:
        columns = self.rng.sample(list(names), min(len(names), self.rng.choice([1, 1, 2, 3])))
        parts = ", ".join(
            self.name(name) + self.maybe(f"({self.length(20)})", 0.25) + self.pick("", "", " DESC", " ASC")
            for name in columns
        )
        if not self.is_old and not self.mariadb and self.rng.random() < 0.05:
            parts += ", ((1 + 1))"
        label = self.maybe(f" {self.name(self.pick('k1', 'k2', 'k3', columns[0]))}", 0.4)
        method = self.maybe(self.pick(" USING BTREE", " USING HASH"), 0.1)
        kind = self.pick(*KEYS).format(self.name("con"))
        if "PRIMARY" in kind:
            label = ""
        return f"{kind}{label}{method} ({parts}){self.maybe(' COMMENT ' + self.text('x, y)'), 0.1)}"

    # ALTER TABLE.

    def any_table(self) -> TableName:
        schema = self.rng.choice([self.schemas[0], self.schemas[0], self.schemas[0], self.schemas[1]])
        return TableName(schema, self.rng.choice(self.tables))

    def known_table(self) -> tuple[TableName, Shape] | None:
        found = [(table, shape) for table, shape in self.catalog.tables.items() if isinstance(shape, Shape)]
        return self.rng.choice(found) if found else None

    def alter_table(self) -> str:
        found = self.known_table()
        if found is None:
            return f"CREATE TABLE {self.table_name(self.any_table())} (a INT)"
        table, shape = found
        columns = [column for column in shape.visible if not column.role]
        count = self.rng.choice([1, 1, 1, 2, 2, 3, 4])
        self.is_alone = count == 1
        clauses = [self.clause(shape, columns) for _ in range(count)]
        head = f"ALTER {self.maybe('ONLINE ', 0.1) if self.mariadb else ''}TABLE {self.table_name(table)}"
        return f"{head} {', '.join(clauses)}{self.maybe(', ALGORITHM=COPY', 0.1)}"

    def clause(self, shape: Shape, columns: Sequence[ColumnShape]) -> str:
        names = [column.name for column in columns] or ["a"]
        one = self.rng.choice(names)
        new = self.new_name(names)
        exists = self.maybe("IF EXISTS ", 0.2) if self.mariadb else ""
        missing = self.maybe("IF NOT EXISTS ", 0.2) if self.mariadb else ""
        column = self.maybe("COLUMN ")
        target = self.pick(one, one, one, new) if exists else one
        keys = [key.name for key in shape.keys or ()] or ["k1"]

        def defined(name: str) -> str:
            return f"{self.name(name)} {self.definition()}"

        added = self.pick(new, one) if missing else new
        changed = self.pick(new, one)
        makers: list[Maker] = [
            lambda: f"ADD {column}{missing}{defined(added)}{self.position(names)}",
            lambda: f"ADD {column}{missing}({defined(new)}, {defined(new + '2')})",
            lambda: f"DROP {column}{exists}{self.name(target)}{self.pick('', '', ' RESTRICT', ' CASCADE')}",
            lambda: f"MODIFY {column}{exists}{defined(target)}{self.position(names)}",
            lambda: f"CHANGE {column}{exists}{self.name(target)} {defined(changed)}{self.position(names)}",
            lambda: f"ALTER {column}{self.name(one)} {self.pick('DROP DEFAULT', 'SET DEFAULT 1')}",
            lambda: self.conversion(columns),
            lambda: f"{self.maybe('DEFAULT ')}CHARACTER SET {self.maybe('= ')}{self.pick(*CHARSETS)}",
            lambda: f"COLLATE {self.pick(*COLLATIONS)}",
            lambda: f"ADD {self.key(names)}",
            lambda: f"ADD {self.key([*names, new])}, ADD {defined(new)}",
            lambda: f"DROP {self.pick('KEY', 'INDEX')} {exists}{self.name(self.rng.choice(keys))}",
            lambda: "DROP PRIMARY KEY",
            lambda: self.pick(
                *(("FORCE",) if shape.engine == "memory" else ("ENGINE=InnoDB", "ENGINE=MyISAM")),
                "FORCE",
                f"COMMENT {self.text('x, y')}",
            ),
        ]
        if len(names) > MOST_COLUMNS:
            makers = makers[2:3]
        if not self.is_old:
            makers += [
                lambda: f"RENAME COLUMN {exists}{self.name(target)} TO {self.name(new)}",
                lambda: (
                    f"RENAME COLUMN {self.name(one)} TO {self.name(names[0])}, "
                    f"RENAME COLUMN {self.name(names[0])} TO {self.name(one)}"
                ),
                lambda: (
                    f"RENAME {self.pick('KEY', 'INDEX')} {self.name(self.rng.choice(keys))} TO {self.name('k9')}"
                ),
            ]
        if not self.is_old and not self.mariadb:
            makers += [
                lambda: f"ALTER {column}{self.name(one)} SET {self.pick('VISIBLE', 'INVISIBLE')}",
                lambda: f"DROP CONSTRAINT {self.name(self.pick('PRIMARY', *keys))}",
            ]
        if self.mariadb:
            makers += [lambda: self.pick("ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING")]
        return self.rng.choice(makers)()

    def conversion(self, columns: Sequence[ColumnShape]) -> str:
        """Servers garble labels on the way to and from a set that is not like ASCII."""
        if any(column.labels and column.charset in WIDE for column in columns):
            return "FORCE"
        if not (self.is_alone or self.is_old or self.mariadb):
            # MySQL 9.7 sizes a TEXT that is changed and converted at once by its old length.
            return "FORCE"
        has_labels = any(column.labels for column in columns) or not self.is_alone
        charsets = CHARSETS if has_labels else (*CHARSETS, *WIDE)
        clause = f"CONVERT TO {self.pick('CHARSET', 'CHARACTER SET')} {self.pick(*charsets)}"
        # MySQL 5.6 does nothing at all if no column changes, and whether a collation does is not known to shapes.
        return clause + ", FORCE" * self.is_old

    def position(self, names: Sequence[str]) -> str:
        return self.pick("", "", " FIRST", f" AFTER {self.name(self.rng.choice(list(names)))}")

    # Other statements.

    def statement(self, catalog: Catalog) -> str:
        """The next statement for a server that has these tables."""
        self.catalog = catalog
        makers: list[tuple[int, Maker]] = [
            (5, self.create_table),
            (24, self.alter_table),
            (2, self.rename),
            (2, self.drop),
            (2, self.index),
            (1, self.schema),
            (1, self.swap),
            (1, lambda: f"TRUNCATE {self.maybe('TABLE ')}{self.table_name(self.any_table())}"),
            (1, self.exchange),
        ]
        [make] = self.rng.choices([make for _, make in makers], [weight for weight, _ in makers])
        return self.noise(make())

    def rename(self) -> str:
        found = self.known_table()
        old = self.any_table() if found is None else found[0]
        new = self.any_table()
        if self.rng.random() < 0.5:
            return f"ALTER TABLE {self.table_name(old)} RENAME {self.pick('', 'TO ', 'AS ')}{self.table_name(new)}"
        return f"RENAME TABLE {self.table_name(old)} TO {self.table_name(new)}"

    def swap(self) -> str:
        tables = sorted(self.catalog.tables)
        if len(tables) < 2:
            return self.create_table()
        one, other = self.rng.sample(tables, 2)
        spare = TableName(one.schema, "spare")
        pairs = [(one, spare), (other, one), (spare, other)]
        return "RENAME TABLE " + ", ".join(
            f"{self.table_name(old)} TO {self.table_name(new)}" for old, new in pairs
        )

    def drop(self) -> str:
        tables = ", ".join(self.table_name(self.any_table()) for _ in range(self.rng.choice([1, 1, 2])))
        return f"DROP {self.pick('TABLE', 'TABLES')} IF EXISTS {tables}"

    def index(self) -> str:
        found = self.known_table()
        if found is None:
            return self.create_table()
        table, shape = found
        if shape.keys and self.rng.random() < 0.4:
            return f"DROP INDEX {self.name(self.rng.choice(shape.keys).name)} ON {self.table_name(table)}"
        column = self.name(self.rng.choice(shape.visible).name)
        index = f"{self.maybe('UNIQUE ')}INDEX {self.name(self.pick('k1', 'k4'))}"
        return f"CREATE {index} ON {self.table_name(table)} ({column}{self.maybe('(5)', 0.3)})"

    def schema(self) -> str:
        schema = self.rng.choice(self.schemas)
        charset = f"{self.maybe('DEFAULT ')}CHARACTER SET {self.maybe('= ')}{self.pick(*CHARSETS)}"
        if schema == self.schemas[1] and self.rng.random() < 0.3:
            return self.pick(
                f"DROP DATABASE {schema}", f"CREATE SCHEMA IF NOT EXISTS {schema} {self.maybe(charset)}"
            )
        return f"ALTER DATABASE {schema} {charset}"

    def exchange(self) -> str:
        found = self.known_table()
        if found is None:
            return self.create_table()
        one, other = self.table_name(found[0]), self.table_name(self.any_table())
        return self.pick(
            f"ALTER TABLE {one} PARTITION BY HASH (1) PARTITIONS 2",
            f"ALTER TABLE {one} REMOVE PARTITIONING",
            f"ALTER TABLE {one} EXCHANGE PARTITION p0 WITH TABLE {other}",
            f"CREATE TABLE {other} LIKE {one}",
        )

    def setting(self) -> str:
        """A statement for the session, which changes how the next ones are read."""
        if self.rng.random() < 0.25 and not self.is_old:
            return f"SET SESSION explicit_defaults_for_timestamp = {self.pick('0', '1')}"
        self.mode = self.pick(*MODES)
        return f"SET SESSION sql_mode = '{self.mode}'"
