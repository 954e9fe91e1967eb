"""Feeds a table into a search index (Elasticsearch, OpenSearch): each row is a document with the row's id.

    python search_index.py mysql://repl:secret@127.0.0.1:3306 http://127.0.0.1:9200/products index.ckpt \
        shop.products id name description

It begins with the rows that are there, then follows the log: documents are replaced and deleted by id, in commit
order. After a crash the last changes are sent again, which leaves the index the same. If the index cannot be reached,
the program ends; started again, it continues, in the middle of the copy too. The user needs SELECT on the table. It
also ends at a TRUNCATE or DROP of the table, whose rows are not in the log.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen

import replica

EMPTIES = re.compile(r"\b(TRUNCATE|DROP\s+(TABLE|PARTITION))\b", re.IGNORECASE)


def actions(change: replica.Change, key: str) -> Iterator[dict[str, object]]:
    """The lines of a bulk request for a change."""
    before, after = change.before, change.after
    if before is not None and (after is None or after[key] != before[key]):
        yield {"delete": {"_id": str(before[key])}}
    if after is not None:
        yield {"index": {"_id": str(after[key])}}
        yield after


def send(url: str, lines: list[dict[str, object]]) -> None:
    """Send a bulk request. Raises an error unless the index has accepted every line."""
    body = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
    request = Request(f"{url}/_bulk", body, {"Content-Type": "application/x-ndjson"})
    with urlopen(request, timeout=60) as response:
        answer = json.load(response)
    for item in answer["items"]:
        [(action, result)] = item.items()
        # A document to delete may be gone already.
        if result["status"] >= 300 and (action, result["status"]) != ("delete", 404):
            raise RuntimeError(f"the index refuses {result}")


async def main(dsn: str, url: str, checkpoint: str, table: str, key: str, *fields: str) -> None:
    store = replica.FileCheckpointStore(checkpoint)
    columns = {table: [key, *fields]}  # other columns are not decoded
    its_name = re.compile(rf"\b{re.escape(table.partition('.')[2])}\b", re.IGNORECASE)
    stream = replica.connect(dsn, tables=table, columns=columns, start="snapshot", checkpoints=store)
    async with stream:
        async for transaction in stream.transactions():
            if transaction.voided:  # an XA transaction from before the start, for example
                raise SystemExit(
                    f"the copy begins anew: empty the index, remove {checkpoint}, and start again"
                )
            changes = await transaction.collect()
            if any(EMPTIES.search(one.sql) and its_name.search(one.sql) for one in transaction.ddl):
                raise SystemExit(
                    f"rows of {table} are gone: empty the index, remove {checkpoint}, and start again"
                )
            lines = [line for change in changes for line in actions(change, key)]
            if lines:
                await asyncio.to_thread(send, url, lines)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
