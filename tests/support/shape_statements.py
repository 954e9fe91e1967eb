"""DDL that each server accepts, one statement after another: every clause that changes a shape.

``REPORTED`` and its companions are our own statements of the kinds that other readers of DDL have had bugs with:
quotes and escapes, keywords as names, attributes in unusual order, one ALTER that does many things, swaps.
``OTHER`` stands for a second schema.
"""

CASES = [
    "CREATE TABLE types (a INT(5) ZEROFILL, b BOOL, c DEC, d FLOAT(25), e REAL, f BIT, g YEAR(4), h TIME(3), "
    "i DATETIME(6), j TIMESTAMP NULL, k CHAR, l NATIONAL VARCHAR(5), m LONG VARCHAR, n TEXT(64), o BLOB(256), "
    "p VARBINARY(5), q ENUM('a ', 'it''s', 0x62) CHARSET latin1, r SET('x', 'y'), s CHAR(3) BYTE, t VARCHAR(70000), "
    "u SERIAL, v CHAR(4) CHARSET binary, w TEXT ASCII, x DOUBLE PRECISION UNSIGNED)",
    "ALTER TABLE types DEFAULT CHARSET greek, ADD y CHAR(5), MODIFY k CHAR(2) FIRST, DROP a",
    "CREATE TABLE geo (p POINT NOT NULL, g GEOMETRY, gc GEOMETRYCOLLECTION, l LINESTRING, i INT, KEY (i))",
    "ALTER TABLE geo DROP INDEX i, MODIFY g POLYGON AFTER i",
    "CREATE TABLE parent (id INT PRIMARY KEY, n INT, KEY (n))",
    "CREATE TABLE child (id INT, n INT, p INT, CONSTRAINT f FOREIGN KEY g (p) REFERENCES parent (id) "
    "ON DELETE CASCADE)",
    "ALTER TABLE child ADD UNIQUE (p), ADD FOREIGN KEY (n) REFERENCES parent (id)",
    "ALTER TABLE child DROP FOREIGN KEY f, ADD UNIQUE (p, n)",
    "CREATE TABLE parts (id INT NOT NULL, d DATE NOT NULL, PRIMARY KEY (id, d)) PARTITION BY RANGE (YEAR(d)) "
    "(PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE part LIKE parts",
    "ALTER TABLE part REMOVE PARTITIONING",
    "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE part",
    "ALTER TABLE parts ADD v VARCHAR(5) AFTER id, DROP PRIMARY KEY, ADD PRIMARY KEY (d, id)",
    "ALTER TABLE parts REORGANIZE PARTITION p1 INTO (PARTITION p2 VALUES LESS THAN (2010), "
    "PARTITION p3 VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE parts DROP PARTITION p2",
    "CREATE TABLE texts (a TINYTEXT, b TEXT, c MEDIUMTEXT, d VARCHAR(9), e ENUM('a')) CHARSET latin1",
    "ALTER TABLE texts CONVERT TO CHARACTER SET utf8mb4",
    "ALTER TABLE texts CONVERT TO CHARACTER SET binary",
    "CREATE TABLE letters (e ENUM('ä', '日') CHARSET utf8, s SET('ß') CHARSET utf8mb4)",
    "ALTER TABLE letters CONVERT TO CHARACTER SET utf8mb4",
    "ALTER TABLE letters CONVERT TO CHARACTER SET utf8",
    "CREATE TABLE seven (a INT)",
    "RENAME TABLE seven TO `of`, texts TO seven, `of` TO texts",
    "CREATE TEMPORARY TABLE texts (x INT)",
    "DROP TEMPORARY TABLE texts",
    "ALTER DATABASE CHARACTER SET greek",
    "CREATE TABLE greek (a CHAR(3))",
    "DROP TABLES IF EXISTS nothing, greek",
    "TRUNCATE parts",
    "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,REAL_AS_FLOAT'",
    """CREATE TABLE "q ""x" ("a" ENUM('\\', 'b'), r REAL)""",
    "SET SESSION sql_mode = ''",
]
MODERN = [
    "CREATE TABLE gen (a INT, v INT AS (a + 1), s INT GENERATED ALWAYS AS (a + 2) STORED, i INT INVISIBLE, j JSON)",
    "ALTER TABLE gen RENAME COLUMN j TO i, RENAME COLUMN i TO j, ADD c VARCHAR(5) DEFAULT ('x') FIRST",
    "CREATE TABLE rows_of AS SELECT 1 AS a, 'x' AS b, 1.5 AS c, NOW(3) AS d",
    "SET SESSION explicit_defaults_for_timestamp = 0",
    "CREATE TABLE stamps (a TIMESTAMP, b TIMESTAMP NULL, c DATETIME)",
    "SET SESSION explicit_defaults_for_timestamp = 1",
    "ALTER TABLE stamps ADD d TIMESTAMP",
]
MYSQL = [
    "CREATE TABLE k (a INT NOT NULL, b INT NOT NULL, UNIQUE ((a + 1)), UNIQUE (b), KEY ((b + a)))",
    "ALTER TABLE k ADD c INT, ALTER a SET INVISIBLE, RENAME INDEX b TO c",
    "ALTER TABLE k DROP CONSTRAINT c, ADD PRIMARY KEY (b)",
    "SET SESSION sql_generate_invisible_primary_key = 1",
    "CREATE TABLE gipk (a INT)",
    "SET SESSION sql_generate_invisible_primary_key = 0",
    "ALTER TABLE gipk ADD b VECTOR(3), MODIFY a VARCHAR(3)",
]
MARIADB = [
    "SET SESSION system_versioning_alter_history = 1",
    "CREATE TABLE hashed (a TEXT, b INT NOT NULL, UNIQUE (a), UNIQUE (b) USING HASH)",
    "ALTER TABLE hashed RENAME hashes",
    "ALTER TABLE hashes ADD c UUID, ADD d INET6",
    "CREATE TABLE versions (a INT PRIMARY KEY, b TEXT UNIQUE, c INT WITHOUT SYSTEM VERSIONING) "
    "WITH SYSTEM VERSIONING",
    "ALTER TABLE versions ADD d INT FIRST, ADD UNIQUE (c)",
    "CREATE TABLE like_versions LIKE versions",
    "ALTER TABLE versions DROP SYSTEM VERSIONING",
    "CREATE TABLE named (a INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, "
    "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    "ALTER TABLE named ADD b INT AFTER a, DROP COLUMN s, DROP COLUMN e, DROP PERIOD FOR SYSTEM_TIME, "
    "DROP SYSTEM VERSIONING",
    "CREATE TABLE period (id INT, s DATE, e DATE, PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS))",
    "ALTER TABLE period ADD x INT FIRST, CHANGE id id2 BIGINT",
    "CREATE OR REPLACE TABLE hashes (a TEXT COMPRESSED, b VARCHAR(9) COMPRESSED, c JSON, d INET4)",
    "ALTER TABLE hashes CONVERT TO CHARACTER SET latin1, ADD COLUMN IF NOT EXISTS a INT, DROP COLUMN IF EXISTS zz",
    "SET SESSION sql_mode = 'ORACLE'",
    "CREATE TABLE oracle (a VARCHAR2(5), b NUMBER, c NUMBER(5,2), d DATE, e CLOB, f RAW(3), g mariadb_schema.DATE)",
    "SET SESSION sql_mode = ''",
    "CREATE SEQUENCE numbers",
    "RENAME TABLE numbers TO counters",
    "SET STATEMENT max_statement_time = 10 FOR ALTER TABLE hashes ADD e INT",
    "ALTER TABLE parts CONVERT PARTITION p0 TO TABLE converted",
]

REPORTED = [
    # Names in quotes, names that are keywords, names with a schema.
    "CREATE TABLE quoted (`a``b` INT, `c d` INT, `select` INT, `e.f` INT, `1` INT, `-` CHAR(1))",
    "ALTER TABLE `quoted` CHANGE `a``b` ```b``` BIGINT, CHANGE COLUMN `c d` c_d INT AFTER `-`",
    "CREATE TABLE words (comment VARCHAR(9), status INT, date DATE, type ENUM('x'), first INT, after INT, no INT, "
    "text TEXT, enum ENUM('enum'), columns INT, data INT, action INT, begin INT, `key` INT, engine INT, serial INT)",
    "ALTER TABLE words MODIFY first BIGINT FIRST, MODIFY after INT AFTER first, ADD at INT AFTER after, "
    "ADD modify INT COMMENT 'add x int, drop y'",
    "ALTER TABLE words RENAME TO wörter",
    "CREATE TABLE OTHER.t (a INT)",
    "ALTER TABLE OTHER . t ADD b INT, RENAME TO `OTHER`.`u`",
    "CREATE TABLE like_other LIKE OTHER.u",
    # Labels and comments with everything in them.
    """CREATE TABLE labels (e ENUM('a\\'b', 'c''d', "e'f", 'g\\\\', 'h,i', '(', 'k\\nl', ''), s SET ( 'x', "y" ))""",
    "ALTER TABLE labels MODIFY e ENUM('z', 'a') CHARACTER SET latin1 COLLATE latin1_bin NULL DEFAULT 'z' COMMENT ';'",
    "ALTER TABLE labels ADD q ENUM('--', '#', '/* */', ';') DEFAULT '#' AFTER e -- , DROP s",
    # Types: synonyms, signs in each place, fractions, attributes in any order.
    "CREATE TABLE numbers (a INTEGER UNSIGNED, b INT(10) UNSIGNED ZEROFILL, c INT ZEROFILL, d BIGINT(20) SIGNED, "
    "e DEC(8,3) UNSIGNED, f NUMERIC UNSIGNED ZEROFILL, g FLOAT(7,4), h FLOAT(53), i REAL(5,2), j BOOLEAN, "
    "k TINYINT(1) UNSIGNED, l DOUBLE PRECISION UNSIGNED, m FIXED(5), n INT8, o INT3 UNSIGNED, "
    "p BIT(8) DEFAULT b'101')",
    "ALTER TABLE numbers CHANGE a a INT, CHANGE b b BIGINT UNSIGNED, MODIFY j INT2 UNSIGNED, ADD q INTEGER UNSIGNED",
    "CREATE TABLE order_of_attributes (a INT COMMENT 'x' NOT NULL DEFAULT '5', b VARCHAR(5) NOT NULL UNIQUE "
    "COLLATE utf8_bin COMMENT 'y', c INT AUTO_INCREMENT NOT NULL PRIMARY KEY, d TIMESTAMP NOT NULL DEFAULT "
    "CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, e DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) NULL, "
    "f CHAR(4) CHARACTER SET 'latin1' NOT NULL, g VARCHAR(4) DEFAULT 'it''s' COLLATE 'utf8_bin')",
    "CREATE TABLE strings (a CHARACTER(5), b CHARACTER VARYING(5), c NATIONAL CHARACTER(5), d NCHAR VARYING(5), "
    "e LONG, f LONG VARCHAR, g TEXT(5) BINARY, h CHAR(5) BINARY, i VARCHAR(5) ASCII, j VARCHAR(5) UNICODE, "
    "k VARBINARY(5), l CHAR BYTE, m TINYTEXT CHARACTER SET ucs2, n VARCHAR(0))",
    "CREATE TABLE spaces(id int(11)unsigned not null,v varchar(5)character set latin1 null default'x',key(v),primary "
    "key(id))",
    # One ALTER that does many things.
    "CREATE TABLE many (a INT, b INT, c INT, d INT, e VARCHAR(5))",
    "ALTER TABLE many DROP b, ADD b VARCHAR(9) AFTER c, ADD x INT AFTER b, CHANGE d dd BIGINT FIRST, DROP e, "
    "ADD (f INT, g INT), ADD KEY (x), ADD UNIQUE KEY u (f, g), ENGINE=InnoDB, COMMENT='a, b'",
    "ALTER TABLE many DROP COLUMN c, ADD COLUMN c INT AFTER x, ADD COLUMN cc INT AFTER c, DROP INDEX u",
    "ALTER TABLE many CHANGE f g INT, CHANGE g f INT",
    "ALTER TABLE many MODIFY a INT AUTO_INCREMENT, ADD PRIMARY KEY USING BTREE (a), "
    "ADD CONSTRAINT one UNIQUE (x), ADD INDEX i (cc) USING BTREE",
    "ALTER TABLE many DROP PRIMARY KEY, DROP KEY one, MODIFY a INT NULL, MAX_ROWS 10",
    # Keys in the definition, and beside it.
    "CREATE TABLE keys_first (PRIMARY KEY (b, a), a INT, b INT, KEY named USING BTREE (a), UNIQUE (b), "
    "CHECK (a > 0), CONSTRAINT CHECK (b > 0))",
    "CREATE TABLE unique_first (id INT NOT NULL, v VARCHAR(255), UNIQUE KEY w (v(99)), PRIMARY KEY (id))",
    "CREATE UNIQUE INDEX single ON unique_first (id) COMMENT 'x'",
    "ALTER TABLE unique_first DROP PRIMARY KEY, DROP INDEX w",
    "DROP INDEX `single` ON unique_first",
    # A key goes on with the column that is added in the place of its own.
    "CREATE TABLE anew (id INT PRIMARY KEY, v VARCHAR(9), UNIQUE (v))",
    "ALTER TABLE anew ADD id VARCHAR(7) FIRST, DROP id, DROP v, ADD v TEXT",
    "ALTER TABLE anew DROP PRIMARY KEY, DROP COLUMN id, ADD ID INT",
    # Renames: several, chains, swaps.
    "CREATE TABLE one (a INT)",
    "CREATE TABLE two (b INT)",
    "RENAME TABLE one TO three, two TO one, three TO two",
    "RENAME TABLE one TO OTHER.one, two TO OTHER.two",
    "RENAME TABLE OTHER.one TO one, OTHER.two TO two",
    "CREATE TABLE IF NOT EXISTS one (z INT)",
    "DROP TABLE one, two",
    "CREATE TABLE one (c VARCHAR(5))",
    # Versions in comments, options in each spelling.
    "CREATE TABLE /*!32302 IF NOT EXISTS*/ old (a INT /*!99999 , nothing INT */ /*!50100 , b INT */) "
    "/*!40100 DEFAULT CHARSET=latin1 */",
    "/* a */ ALTER /* b */ TABLE /* c */ old /* d */ ADD /* e */ c /* f */ INT /*! UNSIGNED */ # end",
    "CREATE TABLE options (v CHAR(5)) ENGINE=MyISAM ROW_FORMAT=FIXED MAX_ROWS=10 MIN_ROWS 1 AVG_ROW_LENGTH=5 "
    "DELAY_KEY_WRITE=1 CHECKSUM 0 PACK_KEYS=DEFAULT, DEFAULT CHARACTER SET = greek COLLATE = greek_bin",
    "ALTER TABLE options CHARACTER SET cp1251, ADD w CHAR(5), MODIFY v CHAR(6)",
    "CREATE TABLE subparts (id INT, d DATE) PARTITION BY RANGE (YEAR(d)) SUBPARTITION BY HASH (TO_DAYS(d)) "
    "(PARTITION p0 VALUES LESS THAN (1990) (SUBPARTITION s0, SUBPARTITION s1), PARTITION p1 VALUES LESS THAN "
    "MAXVALUE (SUBPARTITION s2, SUBPARTITION s3))",
    "ALTER TABLE subparts ADD e INT FIRST",
]
REPORTED_MODERN = [
    "CREATE TABLE defaults (a INT DEFAULT (1 + (2 * 3)), b VARCHAR(50) DEFAULT (CONCAT('a, b', ')')), c JSON DEFAULT "
    "(JSON_ARRAY()), d CHAR(36) DEFAULT (UUID()), e TIMESTAMP(6) DEFAULT NOW(6) ON UPDATE NOW(6))",
    "ALTER TABLE defaults ADD f INT GENERATED ALWAYS AS (a * 2) VIRTUAL COMMENT 'x', ADD g INT AS (a + 1) STORED "
    "AFTER a, ADD CONSTRAINT positive CHECK (b <> 'x')",
    "ALTER TABLE defaults RENAME COLUMN c TO d, RENAME COLUMN d TO c",
    "CREATE TABLE from_values AS (SELECT a, b FROM defaults WHERE 1 = 0)",
    "CREATE TABLE added_by_select (id INT AUTO_INCREMENT PRIMARY KEY, x VARCHAR(9)) SELECT 'x' AS x, 1 AS y",
]
REPORTED_MARIADB = [
    "ALTER TABLE IF EXISTS many ADD COLUMN IF NOT EXISTS x INT, DROP COLUMN IF EXISTS nothing, ADD INDEX "
    "IF NOT EXISTS i (cc), ADD UNIQUE KEY IF NOT EXISTS v (cc)",
    "ALTER TABLE many WAIT 30 MODIFY COLUMN IF EXISTS x BIGINT, CHANGE COLUMN IF EXISTS nothing something INT",
    "ALTER IGNORE TABLE many ADD CONSTRAINT k PRIMARY KEY IF NOT EXISTS (a)",
    "ALTER TABLE many DROP CONSTRAINT IF EXISTS nothing, DROP INDEX IF EXISTS v",
    "CREATE OR REPLACE TABLE many (a INT PRIMARY KEY, b INT)",
    "CREATE TABLE m (id UUID DEFAULT UUID() PRIMARY KEY, a INET6, b INET4, c VARCHAR(5) COMPRESSED)",
]
