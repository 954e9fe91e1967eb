"""Files that several processes read: cut into sections between transactions, each read as a file of its own.

    LogFile -> HeaderWalk -> sections -> WorkerPool -> answers, in order

Only plain files are cut. A file that cannot be cut, such as an encrypted one, is one section. Some logs must be read
by one process from the beginning: see ``can_be_shared``.
"""

import mmap
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Protocol, Self, TypeVar, cast

from protocol.binlog.events import Event
from protocol.binlog.keys import LogKeys
from protocol.binlog.raw_reader import TornTail
from protocol.constants import BINLOG_MAGIC, EVENT_FLAGS_OFFSET, EVENT_HEADER_SIZE, EventFlag
from protocol.records import record, replace
from protocol.rows.cells import CellTable
from protocol.rows.description import ColumnDescription

from ..config.selection import Selection
from ..config.table_filter import SeenTables
from ..workers.pool import WorkerPool
from ..workers.task_messages import Answer
from .cuts import HeaderWalk
from .log_events import LogEvents, RawEvent
from .log_files import LogFile, Section, identity_of
from .table_descriptions import SchemaFile

if TYPE_CHECKING:
    from ..arrow import BatchReader, Images

#: Bytes of a section, which has at least one transaction. Smaller sections cost more to hand out, larger ones memory.
SECTION_BYTES: Final = 2 << 20


Part = TypeVar("Part")
Facts = TypeVar("Facts")


class SectionLog(Protocol):
    """The part of ``BinlogFile`` that reading a section needs."""

    @property
    def torn_bytes(self) -> int:
        """Bytes of an incomplete event at the end."""

    @property
    def seen_tables(self) -> SeenTables | None:
        """What the filter of tables has seen."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def __iter__(self) -> Iterator[Event]: ...

    def go_on_with(self, section: LogFile) -> Iterator[Event]:
        """Read another section, with what the decoder knows of tables."""

    def raw_events(self) -> Iterator[RawEvent]:
        """All events with their bytes."""

    def arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None,
        images: "Images",
        metadata: Sequence[str] | None,
        batch_rows: int,
    ) -> "BatchReader":
        """The row changes of a table."""


@record(frozen=True, slots=True)
class ReadRecipe:
    """How a log was opened, so that a section of it is read in the same way; it can be pickled.

    ``make`` is the class of the log.
    """

    make: Callable[..., SectionLog]
    selection: Selection
    torn: TornTail
    schema: Mapping[str, Sequence[ColumnDescription]]
    keys: LogKeys

    def open(self, file: LogFile, cells: CellTable | None = None) -> SectionLog:
        """The section as a log."""
        schema = SchemaFile(self.schema, {})
        return self.make(
            [file],
            self.selection,
            torn=self.torn,
            schema=schema,
            keys=self.keys,
            cells=cells,
            is_section=True,
        )


class OpenSection(Protocol):
    """Opens the section of a task with these converters of values, or in ``log``, which has read other sections."""

    def __call__(self, cells: CellTable | None = None, log: SectionLog | None = None) -> SectionLog: ...


#: Reads a section. Arguments: its ``OpenSection``, the setting of all tasks, what was given for this task, the
#: output.
SectionWork = Callable[[OpenSection, Any, Any, IO[bytes]], object]


@record(frozen=True, slots=True)
class _Task:
    """A section to read, and what the work needs for it."""

    file: LogFile
    given: object


@record(frozen=True, slots=True)
class _Facts:
    """The results of reading a section."""

    facts: object
    torn_bytes: int
    seen: SeenTables | None


def _read_section(setting: tuple[ReadRecipe, SectionWork, object], task: _Task, output: IO[bytes]) -> _Facts:
    """The work of a process on one section."""
    recipe, work, own = setting
    with _OpenSection(recipe, task.file) as section:
        return section.facts(work(section, own, task.given, output))


class _OpenSection:
    """A section that is being read. Closes its log, which may go on with another section."""

    def __init__(self, recipe: ReadRecipe, file: LogFile) -> None:
        self._recipe = recipe
        self._file = file
        self._log: SectionLog | None = None

    def __call__(self, cells: CellTable | None = None, log: SectionLog | None = None) -> SectionLog:
        if log is None:
            log = self._recipe.open(self._file, cells)
        else:
            log.go_on_with(self._file)
        self._log = log
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._log is not None:
            self._log.__exit__(*exception)

    def facts(self, facts: object) -> _Facts:
        """The results of reading the section."""
        assert self._log is not None
        return _Facts(facts, self._log.torn_bytes, self._log.seen_tables)


class SharedReading:
    """Reads the files of one log by several processes. Close it, at best with ``with``."""

    def __init__(
        self,
        files: Sequence[LogFile],
        events: LogEvents,
        recipe: ReadRecipe,
        workers: int,
        work: SectionWork,
        setting: object,
        *,
        takes_part: bool = False,
    ) -> None:
        """``takes_part``: this process is one of the ``workers``; only ``parts`` may be called then."""
        self.recipe = recipe
        self._files = files
        self._events = events
        self.pool = WorkerPool(workers, _read_section, (recipe, work, setting), takes_part=takes_part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.pool.close()

    def answers(
        self, given: Callable[[LogFile], object] = lambda file: None
    ) -> Iterator[tuple[LogFile, Answer]]:
        """Each section with the facts, the bytes and the error of reading it, in order.

        ``given`` is called for each section when it is handed to a process. The caller raises the error, when it has
        used the bytes.
        """
        waiting: deque[LogFile] = deque()

        def tasks() -> Iterator[_Task]:
            for file in sections_of(self._files, SECTION_BYTES):
                waiting.append(file)
                yield _Task(file, given(file))

        for answer in self.pool.answers(tasks()):
            file, found = waiting.popleft(), answer.facts
            facts = None
            if isinstance(found, _Facts):
                facts = found.facts
                self._add(file, found)
            yield file, Answer(facts, answer.error, answer.data)
        self._events.end_sections()

    def parts(
        self,
        read_here: Callable[[OpenSection], Generator[Part, None, Facts]],
        parts_of: Callable[[object, Facts], Iterator[Part]],
        finish: Callable[[Facts], None],
    ) -> Iterator[Part]:
        """The parts of all sections, in order. This process reads sections, too, between two parts.

        ``read_here`` reads one in this process: it gives parts, and returns facts as ``work`` does. ``parts_of``
        makes parts of the bytes and facts from another process. ``finish`` is called when all parts of a section have
        been handed out.
        """
        waiting: deque[LogFile] = deque()

        def tasks() -> Iterator[_Task]:
            for file in sections_of(self._files, SECTION_BYTES):
                waiting.append(file)
                yield _Task(file, None)

        def here(task: _Task) -> Iterator[Part | None]:
            with _OpenSection(self.recipe, task.file) as section:
                found = section.facts((yield from read_here(section)))
            # The rest waits until all earlier sections are handed out.
            yield None
            end(found)

        def there(answer: Answer) -> Iterator[Part]:
            if answer.error is not None:
                raise answer.error
            assert isinstance(answer.facts, _Facts)
            yield from parts_of(answer.data, cast("Facts", answer.facts.facts))
            end(answer.facts)

        def end(found: _Facts) -> None:
            self._add(waiting.popleft(), found)
            finish(cast("Facts", found.facts))

        yield from self.pool.parts(tasks(), here, there)
        self._events.end_sections()

    def _add(self, file: LogFile, found: _Facts) -> None:
        size = (file.size or 0) if file.section is None else file.section.end - file.section.start
        self._events.add_section(file.name, size, found.torn_bytes, found.seen)


def can_be_shared(files: Sequence[LogFile]) -> bool:
    """Whether processes can read parts of these files: files on disk, no pipes (``<(zcat ...)``), and no relay logs.

    In relay logs a transaction may begin in one file and end in the next.
    """
    return all(
        file.path is not None and os.path.isfile(file.path) and not _is_relay_log(file.path) for file in files
    )


def sections_of(files: Sequence[LogFile], max_bytes: int) -> Iterator[LogFile]:
    """The sections of the files, in order: found when they are asked for, of about ``max_bytes``.

    A file that is still being written is read up to its present end.
    """
    for file in files:
        try:
            opened = open(file.path or "", "rb")  # noqa: SIM115
        except (OSError, ValueError):
            # The process that reads the file reports the error.
            yield file
        else:
            with opened:
                yield from _sections(file, opened, max_bytes)


def _sections(file: LogFile, opened: BinaryIO, max_bytes: int) -> Iterator[LogFile]:
    size, identity = os.fstat(opened.fileno()).st_size, identity_of(opened.fileno())
    head = opened.read(len(BINLOG_MAGIC) + EVENT_HEADER_SIZE)
    if not head.startswith(BINLOG_MAGIC) or len(head) < len(BINLOG_MAGIC) + EVENT_HEADER_SIZE:
        yield file
        return
    with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as data:
        walk = HeaderWalk(data, size)
        start, description = 0, b""
        for cut in walk.cuts(max_bytes):
            if cut.position:
                yield replace(file, section=Section(start, cut.position, description, identity))
            start, description = cut.position, cut.description
            if os.fstat(opened.fileno()).st_size < size:
                # The kernel ends a process that looks at mapped memory behind a file's end. The reader of the rest
                # reports the error.
                break
        is_cut = start or walk.can_be_cut
        yield replace(file, section=Section(start, size, description, identity)) if is_cut else file


def _is_relay_log(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(len(BINLOG_MAGIC) + EVENT_HEADER_SIZE)
    except (OSError, ValueError):
        return False
    flags = int.from_bytes(head[len(BINLOG_MAGIC) + EVENT_FLAGS_OFFSET :][:2], "little")
    return head.startswith(BINLOG_MAGIC) and bool(flags & EventFlag.RELAY_LOG)
