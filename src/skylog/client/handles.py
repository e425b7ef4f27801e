"""librdkafka's clients of this process, and what becomes of them in the child of a fork.

A child has none of librdkafka's threads, and the locks that they held stay locked. So a client of the parent must
neither be used nor freed there: both can wait forever. Every client is created by `new_handle`, which remembers it. In
a child all of them are kept, and `check_handle` rejects their use.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final, TypeVar
from weakref import WeakSet

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from skylog.errors import SkylogError

Handle = TypeVar("Handle", AdminClient, Producer, Consumer)

INHERITED: Final = "was created before this process was forked; create another one after the fork"


class _Producer(Producer):
    """A producer that can be weakly referenced."""


class _Consumer(Consumer):
    """A consumer that can be weakly referenced."""


_KINDS: Final[dict[type, type]] = {Producer: _Producer, Consumer: _Consumer}
_handles: WeakSet[Any] = WeakSet()
_inherited: WeakSet[Any] = WeakSet()


def new_handle(kind: type[Handle], settings: dict[str, Any]) -> Handle:
    """Create a client. Raises KafkaException for settings that librdkafka refuses."""
    made: Handle = _KINDS.get(kind, kind)(settings)
    _handles.add(made)
    return made


def is_inherited(handle: object) -> bool:
    """Whether this is a client of the process that this one was forked from."""
    return handle in _inherited


def check_handle(handle: object) -> None:
    """Raise SkylogError for a client of the process that this one was forked from."""
    if is_inherited(handle):
        raise SkylogError(f"this client {INHERITED}")


def keep_handle(handle: object) -> None:
    """Never free a client, whose threads may not end: add a reference that nobody drops."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def _keep_in_child() -> None:
    for handle in tuple(_handles):
        keep_handle(handle)
        _inherited.add(handle)
        _handles.discard(handle)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_keep_in_child)
