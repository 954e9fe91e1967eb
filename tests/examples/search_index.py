"""Feeds a search index (Elasticsearch, OpenSearch) with a table: each row is the document of its id.

    python search_index.py mysql://repl:secret@127.0.0.1:3306 http://127.0.0.1:9200/products index.ckpt \
        shop.products id name description

Documents are replaced and deleted by id, in the order of the commits: after a crash the last ones are sent again and
the index ends the same. If it cannot be reached the program ends; start it again, and it goes on. Rows that were
there before it are not in the log: index them once, behind the first start.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen

import replica


def actions(change: replica.Change, key: str) -> Iterator[dict[str, object]]:
    """The lines of a bulk request."""
    before, after = change.before, change.after
    if before is not None and (after is None or after[key] != before[key]):
        yield {"delete": {"_id": str(before[key])}}
    if after is not None:
        yield {"index": {"_id": str(after[key])}}
        yield after


def send(url: str, lines: list[dict[str, object]]) -> None:
    """Raises where the index has not taken all of it."""
    body = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
    request = Request(f"{url}/_bulk", body, {"Content-Type": "application/x-ndjson"})
    with urlopen(request, timeout=60) as response:
        answer = json.load(response)
    for item in answer["items"]:
        [(action, result)] = item.items()
        # What is not there need not be deleted.
        if result["status"] >= 300 and (action, result["status"]) != ("delete", 404):
            raise RuntimeError(f"the index refuses {result}")


async def main(dsn: str, url: str, checkpoint: str, table: str, key: str, *fields: str) -> None:
    store = replica.FileCheckpointStore(checkpoint)
    columns = {table: [key, *fields]}  # no others are decoded
    async with replica.connect(dsn, tables=table, columns=columns, checkpoints=store) as stream:
        async for transaction in stream.transactions():
            changes = await transaction.collect()
            lines = [line for change in changes for line in actions(change, key)]
            if lines:
                await asyncio.to_thread(send, url, lines)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
