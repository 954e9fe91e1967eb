"""Keeps a copy of a table in SQLite, exactly as the table is at one place of the log: each change counts once.

    python mirror_to_sqlite.py mysql://repl:secret@127.0.0.1:3306 shop.db shop.products id name price

It begins with a copy of the table, which needs SELECT, and then follows the log. Rows and checkpoint are in the same
SQLite transaction, so after a crash, in the middle of the copy too, it goes on at the next row. It ends at a TRUNCATE
or DROP of the table, whose rows are not in the log.
"""

import asyncio
import json
import re
import sqlite3
import sys

import replica

NATIVE = (int, float, str, bytes, type(None))
EMPTIES = re.compile(r"\b(TRUNCATE|DROP\s+(TABLE|PARTITION))\b", re.IGNORECASE)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def load(target: sqlite3.Connection) -> replica.Checkpoint | None:
    target.execute(
        "CREATE TABLE IF NOT EXISTS resume (only INTEGER PRIMARY KEY CHECK (only = 1), checkpoint TEXT)"
    )
    found = target.execute("SELECT checkpoint FROM resume").fetchone()
    return replica.Checkpoint.from_dict(json.loads(found[0])) if found else None


async def main(dsn: str, path: str, table: str, key: str, *others: str) -> None:
    names, its_name = [key, *others], re.compile(rf"\b{re.escape(table.partition('.')[2])}\b", re.IGNORECASE)
    copy, by_key = quoted(table), f"WHERE {quoted(key)} = ?"
    target = sqlite3.connect(path)
    start = load(target) or "snapshot"
    target.execute(
        f"CREATE TABLE IF NOT EXISTS {copy} ({', '.join(map(quoted, names))}, UNIQUE ({quoted(key)}))"
    )
    async with replica.connect(dsn, tables=table, columns={table: names}, start=start) as stream:
        async for transaction in stream.transactions():
            changes = await transaction.collect()
            if any(EMPTIES.search(one.sql) and its_name.search(one.sql) for one in transaction.ddl):
                raise SystemExit(f"rows of {table} are gone: remove {path}, and start again")
            with target:  # one SQLite transaction
                if transaction.voided:  # the copy begins anew
                    target.execute(f"DELETE FROM {copy}")
                for change in changes:
                    if change.before is not None:
                        target.execute(f"DELETE FROM {copy} {by_key}", (change.before[key],))
                    if change.after is not None:  # "read" is a row of the copy
                        row = [change.after[name] for name in names]
                        values = [value if isinstance(value, NATIVE) else str(value) for value in row]
                        target.execute(
                            f"INSERT OR REPLACE INTO {copy} VALUES ({', '.join('?' * len(row))})", values
                        )
                checkpoint = json.dumps(transaction.checkpoint.to_dict())
                target.execute("INSERT OR REPLACE INTO resume VALUES (1, ?)", (checkpoint,))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
