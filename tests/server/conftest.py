"""Server fixtures: each server is started when the first test asks for it, and shared by the whole session.

`server` runs a test on all four; `mysql97`, `mysql56`, `mariadb1011` and `mariadb118` are single ones.
`@pytest.mark.parametrize("server", [...], indirect=True)` runs a test on some. `extra_server` starts one with
other arguments for a single test, `supervised_server` one that may be killed. Tests share servers, so each works
in a schema of its own (`schema`, `Server.fresh_schema()`) and begins at the log position it finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator

import pytest

from tests.conftest import SERVER_PROPERTY
from tests.server.support.clusters import cluster, store  # noqa: F401 -- fixtures
from tests.server.support.served_logs import Recorded, record, unfollow
from tests.server.support.served_replicas import MARIADB, MYSQL, start_server
from tests.support.servers import SERVERS, Server, ServerPool, ServerUnavailableError

_SINGLE_FIXTURES = {name.replace(":", "").replace(".", ""): name for name in SERVERS}

# Of these, the parameter is the server's name; `certified` is of test_login_transports.
_PARAMETRIZED = ("server", "certified")

_extra_servers = pytest.StashKey[set[str]]()


@pytest.fixture(scope="session")
def server_pool(pytestconfig: pytest.Config) -> Iterator[ServerPool]:
    images = dict(pair.split("=") for pair in pytestconfig.getoption("in_place_of"))
    with contextlib.closing(ServerPool(images)) as pool:
        yield pool


def _shared(pool: ServerPool, name: str) -> Server:
    try:
        return pool.shared(name)
    except ServerUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=list(SERVERS), ids=lambda name: name.replace(":", "-"))
def server(request: pytest.FixtureRequest, server_pool: ServerPool) -> Server:
    return _shared(server_pool, request.param)


@pytest.fixture(scope="session")
def mysql97(server_pool: ServerPool) -> Server:
    return _shared(server_pool, "mysql:9.7")


@pytest.fixture(scope="session")
def mysql56(server_pool: ServerPool) -> Server:
    return _shared(server_pool, "mysql:5.6")


@pytest.fixture(scope="session")
def mariadb1011(server_pool: ServerPool) -> Server:
    return _shared(server_pool, "mariadb:10.11")


@pytest.fixture(scope="session")
def mariadb118(server_pool: ServerPool) -> Server:
    return _shared(server_pool, "mariadb:11.8")


@pytest.fixture
def extra_server(request: pytest.FixtureRequest, server_pool: ServerPool) -> Iterator[Callable[..., Server]]:
    """`extra_server("mysql:9.7", "--skip-log-bin")`: a server of this test alone, removed when it ends."""
    yield from _starter(request, server_pool, server_pool.start)


@pytest.fixture
def supervised_server(
    request: pytest.FixtureRequest, server_pool: ServerPool
) -> Iterator[Callable[..., Server]]:
    """As `extra_server`, with a server that `tests.faults.container` can kill and start again."""
    yield from _starter(request, server_pool, server_pool.start_supervised)


def _starter(
    request: pytest.FixtureRequest, pool: ServerPool, start: Callable[..., Server]
) -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:

        def start_one(name: str, *arguments: str, **options: object) -> Server:
            try:
                server = start(name, *arguments, **options)
            except ServerUnavailableError as error:
                pytest.skip(str(error))
            stack.callback(pool.stop, server.container)
            request.node.stash.setdefault(_extra_servers, set()).add(name)
            return server

        yield start_one


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """The name of an empty schema on `server`."""
    with server.fresh_schema() as name:
        yield name


@pytest.fixture
def metadata(server: Server, request: pytest.FixtureRequest) -> Iterator[str | None]:
    """What table maps hold, set for the server as a whole."""
    level: str | None = request.param
    if level is None:
        yield None
        return
    [(usual,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    server.query(f"SET GLOBAL binlog_row_metadata = '{level}'")
    try:
        yield level
    finally:
        server.query(f"SET GLOBAL binlog_row_metadata = '{usual}'")


@pytest.fixture
def table(server: Server) -> Iterator[str]:
    """An empty table in a schema of its own; its qualified name."""
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(2000))")
        yield f"{schema}.t"


@pytest.fixture(scope="module", params=[MYSQL, MARIADB])
def recorded(
    request: pytest.FixtureRequest, server_pool: ServerPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorded]:
    """A source of its own, and its log."""
    source = start_server(server_pool, request.param)
    yield record(source, tmp_path_factory.mktemp("log"))
    server_pool.stop(source.container)


@pytest.fixture(scope="module")
def follower(recorded: Recorded, server_pool: ServerPool) -> Iterator[Server]:
    """A server of the same version that is to become a replica."""
    server = start_server(server_pool, recorded.source.name)
    unfollow(server)
    yield server
    server_pool.stop(server.container)


def _servers_of(item: pytest.Item) -> set[str]:
    fixtures = getattr(item, "fixturenames", ())
    names = {name for fixture, name in _SINGLE_FIXTURES.items() if fixture in fixtures}
    parameters = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    names |= {str(parameters[fixture]) for fixture in _PARAMETRIZED if fixture in parameters}
    extra: set[str] = item.stash.get(_extra_servers, set())
    return names | extra


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        report.user_properties += [(SERVER_PROPERTY, name) for name in sorted(_servers_of(item))]
    return report
