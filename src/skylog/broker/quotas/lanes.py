"""The fast lane of producers while there are quotas: what it has served is counted afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skylog.broker.producer_lanes import response_ends
from skylog.broker.quotas.usage import Usage

if TYPE_CHECKING:
    from skylog.broker.producer_lanes import ProducerLanes
    from skylog.broker.quotas.active import ActiveQuotas
    from skylog.broker.session import Session
    from skylog.net import Reply

_LENGTH: Final = 4


class MeteredLanes:
    """Serves requests like the lanes of a session, counts them, and holds the connection if they were too much."""

    def __init__(self, lanes: ProducerLanes, quotas: ActiveQuotas, session: Session) -> None:
        self._lanes = lanes
        self._quotas = quotas
        self._session = session

    def serve(self, view: memoryview, position: int, end: int, parts: Reply) -> int:
        usage = Usage(self._quotas, self._session)
        first = len(parts)
        stop = self._lanes.serve(view, position, end, parts)
        if len(parts) == first or self._session.connection.closed:
            return stop
        served = sum(1 for part in parts[first:] for _ in response_ends(_bytes(part)))
        usage.produced(stop - position - served * _LENGTH)
        wait_ms = usage.settle()
        if usage.wait_s:
            for at in range(first, len(parts)):
                parts[at] = self._lanes.with_wait(_bytes(parts[at]), wait_ms)
            self._quotas.hold(self._session.connection, usage.wait_s)
        return stop


def _bytes(part: object) -> bytes:
    """The part of a reply that a lane has made: one response or several."""
    assert isinstance(part, bytes)
    return part
