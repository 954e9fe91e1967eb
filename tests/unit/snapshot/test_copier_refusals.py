"""What a copy makes of the server's refusals."""

import pytest

from protocol.errors import PrivilegeError, ServerError
from replica.config.options import Options
from replica.config.reconnect import FailureCount
from replica.snapshot.copier import Copier
from replica.snapshot.marks import LOWEST
from replica.snapshot.snapshot_copy import SnapshotCopy


async def test_select_that_is_refused_in_the_midst_of_a_chunk() -> None:
    """Between the statement that names the table and the one that reads it."""
    copier = Copier(Options.build("mysql://u@h", {}), SnapshotCopy(), lambda: LOWEST)
    refusal = ServerError(1142, "42000", "SELECT command denied to user")
    with pytest.raises(PrivilegeError, match=r"GRANT SELECT ON s\.t"):
        await copier._after(refusal, ("s", "t"), FailureCount())
