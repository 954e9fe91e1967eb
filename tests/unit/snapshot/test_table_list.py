"""Which tables a copy takes, as far as no server is asked."""

from __future__ import annotations

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
