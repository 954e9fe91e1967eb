"""Keeps a copy of a table in PostgreSQL: begins with a copy of the rows, then follows; each change counts once.

    python mirror_to_postgresql.py mysql://repl:secret@127.0.0.1:3306 postgresql://localhost/shop shop.orders id total

The table in PostgreSQL has the same name (schema and table) and a primary key on the first column. Rows and
checkpoint are in the same transaction, so after a crash, in the middle of the copy too, it goes on at the next row.
It ends at a TRUNCATE or DROP of the table, whose rows are not in the log.
"""

import json
import re
import sys

import psycopg
from psycopg import sql

import replica.sync

RESUME = "CREATE TABLE IF NOT EXISTS resume (name text PRIMARY KEY, checkpoint jsonb)"
SAVE = """INSERT INTO resume VALUES (%s, %s)
          ON CONFLICT (name) DO UPDATE SET checkpoint = excluded.checkpoint"""
EMPTIES = re.compile(r"\b(TRUNCATE|DROP\s+(TABLE|PARTITION))\b", re.IGNORECASE)


def upsert(copy: sql.Identifier, names: list[str]) -> sql.Composed:
    columns = [sql.Identifier(name) for name in names]
    return sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET ({}) = ROW ({})").format(
        copy,
        sql.SQL(", ").join(columns),
        sql.SQL(", ").join(sql.Placeholder() * len(names)),
        columns[0],
        sql.SQL(", ").join(columns),
        sql.SQL(", ").join(sql.SQL("excluded.") + column for column in columns),
    )


def apply(target: psycopg.Connection, table: str, names: list[str], batch: replica.ChangeBatch) -> None:
    copy, key = sql.Identifier(*table.split(".")), names[0]
    insert = upsert(copy, names)
    delete = sql.SQL("DELETE FROM {} WHERE {} = %s").format(copy, sql.Identifier(key))
    its_name = re.compile(rf"\b{re.escape(table.partition('.')[2])}\b", re.IGNORECASE)
    if any(EMPTIES.search(one.sql) and its_name.search(one.sql) for one in batch.ddl):
        raise SystemExit(
            f"rows of {table} are gone: remove its line of resume, empty {table}, and start again"
        )
    if batch.voided:  # the copy begins anew
        target.execute(sql.SQL("DELETE FROM {}").format(copy))
    for change in batch.changes:
        if change.before is not None and (change.after is None or change.after[key] != change.before[key]):
            target.execute(delete, [change.before[key]])
        if change.after is not None:  # "read" is a row of the copy
            target.execute(insert, [change.after[name] for name in names])


def main(dsn: str, target_dsn: str, table: str, *names: str) -> None:
    with psycopg.connect(target_dsn, autocommit=True) as target:
        target.execute(RESUME)
        found = target.execute("SELECT checkpoint FROM resume WHERE name = %s", [table]).fetchone()
        start = replica.Checkpoint.from_dict(found[0]) if found else "snapshot"
        with replica.sync.connect(dsn, tables=table, columns={table: names}, start=start) as stream:
            for batch in stream.batches(max_rows=1000, max_seconds=0.2):
                with target.transaction(), target.pipeline():
                    apply(target, table, list(names), batch)
                    target.execute(SAVE, [table, json.dumps(batch.checkpoint.to_dict())])


if __name__ == "__main__":
    main(*sys.argv[1:])
