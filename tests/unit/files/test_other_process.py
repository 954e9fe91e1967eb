"""A log opened before a fork: two processes have one place in the file, and each missed what the other one read."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from pathlib import Path

import pytest

import replica
from protocol.errors import ConfigurationError
from replica.demo import recorded_log


def test_a_forked_process_does_not_read_on(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    with recorded_log() as log:
        path.write_bytes(log.read_bytes())
    with replica.open_binlog(path) as log:
        expected = sum(1 for _ in log)
    with replica.open_binlog(path) as log, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        next(log)
        child = os.fork()
        if not child:
            status = 1
            try:
                for _ in range(2):
                    with pytest.raises(ConfigurationError, match="was opened in another process"):
                        list(log)
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert 1 + sum(1 for _ in log) == expected


def test_a_log_cannot_be_pickled() -> None:
    with recorded_log() as path, replica.open_binlog(path) as log:
        for refuse in (pickle.dumps, copy.copy):
            with pytest.raises(
                TypeError, match="a BinlogFile cannot be pickled or copied: each process opens"
            ):
                refuse(log)
        assert pickle.loads(pickle.dumps(next(log))).file == log.file
