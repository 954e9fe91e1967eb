"""Programs of ``tests.server.support`` in processes of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.support.places import ROOT
from tests.support.servers import Server


async def result_of(program: str, server: Server, schema: str, *arguments: object) -> dict[str, Any]:
    """What a program prints that reads the log of a schema's tables; ``arguments`` are its others."""
    command = ("-m", f"tests.server.support.{program}", server.dsn(), f"{schema}.*", *map(str, arguments))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(120):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    result: dict[str, Any] = json.loads(output)
    print(server.name, result)
    return result
