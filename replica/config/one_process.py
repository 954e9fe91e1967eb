"""The base of objects that stand for an open connection or file, and so cannot be sent to another process."""

from typing import ClassVar, NoReturn


class OneProcess:
    """An object that ``pickle``, ``copy`` and ``multiprocessing`` refuse, with what to send instead."""

    _instead: ClassVar[str]

    # ``copy`` and ``pickle`` ask this first. The error without it names a part of the object, such as an SSLContext.
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied: {self._instead}")
