"""Whether an error shows a password, in whatever form."""

from __future__ import annotations

import base64
import pickle
import traceback
from collections.abc import Iterator

from protocol.errors import ReplicaError


def forms(secret: str) -> list[str]:
    """How a secret may appear in a text."""
    data = secret.encode()
    return [secret, repr(data)[2:-1], data.hex(), base64.b64encode(data).decode(), repr(list(data))[1:-1]]


def chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [other for other in (one.__cause__, one.__context__) if other is not None]


def assert_silent(error: BaseException, password: str, *shown: str) -> None:
    texts = [*shown, "".join(traceback.format_exception(error))]
    for one in chain(error):
        texts += [str(one), repr(one), repr(one.args), repr(vars(one))]
        # What UnicodeError and others keep beside their text.
        texts += [repr(getattr(one, name)) for name in ("object", "filename", "doc") if hasattr(one, name)]
    if isinstance(error, ReplicaError):
        texts.append(repr(pickle.loads(pickle.dumps(error))))
    for form in forms(password):
        assert not any(form in text for text in texts)
