"""Warns that a stream waits for an end of the log that its source has named, but does not send."""

import logging
from collections.abc import Iterable
from typing import Final

from protocol.binlog.events import HeartbeatEvent

from ..config.log_facts import log_facts
from ..snapshot.marks import Place

_LOGGER: Final = logging.getLogger(__name__)
# A source tells of a transaction before it sends it: a heartbeat may come in between.
_MANY_TIMES: Final = 3


class UnreachedEnd:
    """Logs the warning once. The stop "now", and each chunk of a copy, wait for the end that the source has named."""

    def __init__(self) -> None:
        self._sent = Place("", 0)
        self._times = 0
        self._is_told = False

    def hear(self, heartbeat: HeartbeatEvent, ends: Iterable[Place], source: str) -> None:
        """Take a heartbeat of an idle source. ``ends`` are waited for; ``source`` is its address."""
        sent = Place(heartbeat.source_file, heartbeat.source_position)
        self._times = self._times + 1 if sent == self._sent else 1
        self._sent = sent
        if self._is_told or self._times < _MANY_TIMES:
            return
        for end in ends:
            if not sent.has_reached(end):
                self._is_told = True
                told, reached = f"{end.file}:{end.position}", f"{sent.file}:{sent.position}"
                _LOGGER.warning(
                    "%s told that its log ends at %s, and says now that it has sent all, up to %s: the stream waits "
                    "for the rest. Was the log reset, or does a proxy answer for several servers?",
                    source,
                    told,
                    reached,
                    extra=log_facts("end-unreached", source=source, end=told, sent=reached),
                )
                return
