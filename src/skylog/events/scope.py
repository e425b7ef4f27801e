"""The events of one request, from where they are fired to where the courier takes them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skylog.events.envelope import Note


class RequestScope:
    """Collects the events that one request fires, in all threads and tasks that work for it.

    A scope inside an open one joins it. A task that outlives its request finds the scope closed. Its events, like those
    that are fired outside of any scope, are collected one by one, each in a scope of its own that is never open.

    The end of a scope moves nothing and tells nobody, and so costs next to nothing: the courier, which was told of the
    first event, looks now and then whether the scope is closed. Nor is there a lock: whoever fires appends to `events`
    and then looks whether the courier knows of the scope; the courier forgets it and then takes what is there.
    """

    __slots__ = ("_current", "events", "is_known", "is_open")

    def __init__(self, current: ContextVar[RequestScope | None]) -> None:
        self._current = current
        self.events: list[Note] = []
        self.is_open = False
        self.is_known = False

    def __enter__(self) -> RequestScope:
        """The scope that collects: this one, or the one that it joins."""
        outer = self._current.get()
        if outer is not None and outer.is_open:
            return outer
        self.is_open = True
        self._current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        # The context keeps the scope, which counts as none once it is closed. There is no token to reset by: a WSGI
        # response may end in another context than it began in.
        self.is_open = False
