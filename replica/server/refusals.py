"""The errors with which a source refuses or ends a binlog dump (mostly code 1236), in the servers' own words.

Texts were recorded from MySQL 9.7 and MariaDB 11.8, or come from ``rpl_binlog_sender.cc``, ``errmsg`` and
``sql_repl.cc``. ``protocol.conversation.server_errors`` is how a replica reads them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from protocol.binlog.checksum import is_mariadb_version, version_numbers
from protocol.conversation.messages import Err
from protocol.conversation.server_errors import CANNOT_READ_BINLOG
from protocol.gtid import GtidSet, MariadbGtid
from protocol.records import record

_MARIADB_SAME_ID: Final = 4052
# Since this version MySQL's texts say "source" and "replica".
_NEW_WORDS_SINCE: Final = (8, 0, 26)

_MAX_TEXT: Final = 511  # MYSQL_ERRMSG_SIZE
# Escapes braces in text that goes through str.format_map().
_BRACES: Final = str.maketrans({"{": "{{", "}": "}}"})
_DUPLICATE: Final = (
    "A {replica} with the same server_uuid/server_id as this {replica} has connected to the {source}"
)


class DumpRefusedError(Exception):
    """The dump is refused, or ends, with this ERR packet."""

    def __init__(self, err: Err) -> None:
        super().__init__(err.message)
        self.err = err


@record(slots=True, frozen=True)
class Place:
    """Where a dump started, and how far it has read."""

    start_file: str
    start_position: int
    file: str
    event_position: int
    position: int


class Refusals:
    """Makes the errors of one family and version of servers."""

    def __init__(self, version: str) -> None:
        self.is_mariadb = is_mariadb_version(version)
        has_new_words = not self.is_mariadb and version_numbers(version) >= _NEW_WORDS_SINCE
        self._words = _NEW_WORDS if has_new_words else _OLD_WORDS
        self._folder = "" if self.is_mariadb else "./"

    def _refuse(
        self, text: str, place: Place | None = None, code: int = CANNOT_READ_BINLOG
    ) -> DumpRefusedError:
        text = text.format_map(self._words)
        if place is not None:
            file = self._folder + place.file
            text += (
                f"; the first event '{place.start_file}' at {place.start_position}, the last event read from "
                f"'{file}' at {place.event_position}, the last byte read from '{file}' at {place.position}."
            )
        return DumpRefusedError(Err(code, "HY000", text[:_MAX_TEXT]))

    def no_such_file(self) -> DumpRefusedError:
        """The file was purged, or never existed. One of the three frequent errors."""
        return self._refuse("Could not find first log file name in binary log index file")

    def unreadable_file(self, reason: str) -> DumpRefusedError:
        """The file exists, but cannot be served as a binary log."""
        return self._refuse(f"Could not open log file: {reason}".translate(_BRACES))

    def past_end(self, file: str, position: int) -> DumpRefusedError:
        """The position is past the end of the file. The second of the three frequent errors."""
        if not self.is_mariadb:
            return self._refuse("Client requested {source} to start replication from position > file size")
        return self._impossible(file, position)

    def before_first(self, file: str, position: int) -> DumpRefusedError:
        """The position is inside the magic bytes at the start of the file."""
        if not self.is_mariadb:
            return self._refuse("Client requested {source} to start replication from position < 4")
        return self._impossible(file, position)

    def _impossible(self, file: str, position: int) -> DumpRefusedError:
        place = Place(file, position, file, 4, 4)
        return self._refuse("Client requested master to start replication from impossible position", place)

    def bogus_event(self, place: Place) -> DumpRefusedError:
        """The bytes at the position are not an event, or a damaged one."""
        return self._refuse("bogus data in log event", place)

    def large_event(self, place: Place) -> DumpRefusedError:
        """The event at the position would be larger than 1 GiB."""
        return self._refuse(
            "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on {source}", place
        )

    def truncated_event(self, place: Place) -> DumpRefusedError:
        """The file ends before the event does."""
        return self._refuse(
            "binlog truncated in the middle of event; consider out of disk space on {source}", place
        )

    def no_next_file(self, place: Place) -> DumpRefusedError:
        """The files after the current one were removed, from the disk or from the index."""
        return self._refuse("could not find next log", place)

    def no_checksums(self, place: Place) -> DumpRefusedError:
        """The file has checksums, and the replica has not said that it knows them."""
        return self._refuse(
            "{Replica} can not handle replication events with the checksum that {source} is configured to log",
            place,
        )

    def duplicate(self, place: Place) -> DumpRefusedError:
        """Another replica with the same identity has started a dump."""
        return self._refuse(_DUPLICATE, place, _MARIADB_SAME_ID if self.is_mariadb else CANNOT_READ_BINLOG)

    # By GTID on MySQL

    def no_gtids(self) -> DumpRefusedError:
        """The log has no GTIDs."""
        return self._refuse(
            "The replication sender thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF "
            "instead of ON."
        )

    def anonymous(self, file: str, position: int) -> DumpRefusedError:
        """A transaction to be sent has no GTID (ER_CANT_REPLICATE_ANONYMOUS_WITH_AUTO_POSITION)."""
        return self._refuse(
            "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file "
            f"{self._folder}{file}, position {position}.".translate(_BRACES)
        )

    def malformed_gtids(self) -> DumpRefusedError:
        """The GTID set in the request is malformed (ER_MALFORMED_GTID_SET_ENCODING)."""
        return self._refuse("Malformed GTID set encoding.", code=1773)

    def more_gtids(self) -> DumpRefusedError:
        """The replica has transactions with this source's uuid that the source lacks."""
        return self._refuse(
            "{Replica} has more GTIDs than the {source} has, using the {source}'s SERVER_UUID. This may indicate "
            "that the the last binary log file was truncated or lost, e.g., after a power failure when sync_binlog "
            "!= 1. The {source} may have rolled back transactions that were already replicated to the {replica}. "
            "Replicate any transactions that {source} has rolled back from {replica} to {source}, and/or commit "
            "empty transactions on {source} to account for transactions that have been committed on {source} but "
            "are not included in GTID_EXECUTED."
        )

    def purged_gtids(self, sent: GtidSet, missing: GtidSet) -> DumpRefusedError:
        """The replica misses transactions of purged files. The third of the three frequent errors."""
        return self._refuse(
            "Cannot replicate because the {source} purged required binary logs. Replicate the missing transactions "
            "from elsewhere, or provision a new {replica} from backup. Consider increasing the {source}'s binary log "
            f"expiration period. The GTID set sent by the {{replica}} is '{sent}', and the missing transactions are "
            f"'{missing}'"
        )

    # By GTID on MariaDB

    def malformed_state(self) -> DumpRefusedError:
        """@slave_connect_state is not a list of GTIDs."""
        return self._refuse(
            "Out of memory or malformed slave request when obtaining start position from GTID state",
            code=1105,
        )

    def unknown_gtid(self, gtid: MariadbGtid, *, has_diverged: bool) -> DumpRefusedError:
        """The replica has a transaction that the log lacks."""
        text = f"Error: connecting slave requested to start from GTID {gtid}, which is not in the master's binlog"
        if has_diverged:
            text += (
                ". Since the master's binlog contains GTIDs with higher sequence numbers, it probably means that the "
                "slave has diverged due to executing extra erroneous transactions"
            )
        return self._refuse(text)

    def gtid_in_a_hole(self, gtid: MariadbGtid) -> DumpRefusedError:
        """In strict mode: the log has transactions before and after this one, but lacks it."""
        return self._refuse(
            f"The binlog on the master is missing the GTID {gtid} requested by the slave (even though both a prior "
            "and a subsequent sequence number does exist), and GTID strict mode is enabled"
        )

    def purged_state(self) -> DumpRefusedError:
        """MariaDB's form of ``purged_gtids``."""
        return self._refuse(
            "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old "
            "and required binlog files have been purged."
        )


_NEW_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"source": "source", "replica": "replica", "Replica": "Replica"}
)
_OLD_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"source": "master", "replica": "slave", "Replica": "Slave"}
)
