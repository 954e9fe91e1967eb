"""Which tables a copy takes, as far as no server is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from protocol.errors import ConfigurationError
from replica.snapshot.table_list import check_found


async def test_a_condition_names_one_table() -> None:
    """`w.a.t` may be the table `a.t` of `w`; a schema with a dot is in backticks."""
    unused: Any = None
    for found, name, other in ((("w", "a.t"), "w.a.t", "`w.a`.t"), (("w.a", "t"), "`w.a`.t", "w.a.t")):
        await check_found(unused, [], [found], [name])
        with pytest.raises(ConfigurationError, match="is not among the tables that are copied"):
            await check_found(unused, [], [found], [other])


class CountedTables(list[tuple[str, str]]):
    """Counts the walks over it."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.walks += 1
        return super().__iter__()


async def test_tables_and_patterns_are_compared_once() -> None:
    """Tables were walked over for each pattern: 4,000 tables named one by one took 2 s."""
    unused: Any = None
    walks = []
    for size in (10, 1000):
        found = CountedTables(("shop", f"t{number}") for number in range(size))
        patterns = ["*", "shop.*", *(f"shop.t{number}" for number in range(size))]
        await check_found(unused, patterns, found)
        walks.append(found.walks)
        with pytest.raises(ConfigurationError, match=r"no table matches .shop\.other."):
            await check_found(unused, [*patterns, "shop.other", "shop.another"], found)
    assert walks[0] == walks[1]
