"""Option files, read as the servers' own program reads them, and used to log in."""

from __future__ import annotations

from pathlib import Path

import pytest

import replica
from replica.config.option_file import read_option_file
from tests.support.option_values import OPTION_VALUES
from tests.support.servers import Server

from .support.streams import PASSWORD, take_rows, user_of

# In the images of all but 5.6.
PROGRAM = "my_print_defaults"


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:10.11", "mariadb:11.8"], indirect=True)
def test_values_are_what_the_servers_program_reads(server: Server, tmp_path: Path) -> None:
    ours, theirs = [], []
    for number, (written, _) in enumerate(OPTION_VALUES):
        text = f"[client]\n# {number}\nuser={written}\n"
        path = tmp_path / f"{number}.cnf"
        path.write_text(text)
        path.chmod(0o600)
        ours.append(read_option_file(str(path)))
        command = (
            f"printf %s '{text.encode().hex()}' | sed 's/../\\\\x&/g' | xargs -0 printf > /tmp/{number}.cnf"
        )
        server.exec("bash", "-c", command)
        output = server.exec(PROGRAM, f"--defaults-file=/tmp/{number}.cnf", "client")
        theirs.append({"user": output.decode().removeprefix("--user=").removesuffix("\n")})
    assert ours == theirs


async def test_a_login_by_option_file(
    mysql97: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it takes to log in stands in the file, or all but the password."""
    with mysql97.fresh_schema() as schema, user_of(mysql97) as user:
        mysql97.query(f"CREATE TABLE {schema}.t (a INT)")
        path = tmp_path / "my.cnf"
        place = f"host={mysql97.host}\nport={mysql97.port}\nuser={user}\ncompress\n"
        for text, environment in ((f'{place}password="{PASSWORD}"\n', ""), (place, PASSWORD)):
            path.write_text(f"[client]\n{text}")
            path.chmod(0o600)
            monkeypatch.setenv("MYSQL_PWD", environment)
            async with replica.connect(option_file=str(path), tables=f"{schema}.*") as stream:
                mysql97.query(f"INSERT INTO {schema}.t VALUES (1)")
                assert await take_rows(stream, 1) == [(1,)]
