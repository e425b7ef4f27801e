"""The quotas that a broker enforces now. They exist only while there is a quota of a user or a client id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skylog.broker.session import ANONYMOUS
from skylog.clock import Clock
from skylog.quotas import ClientLimits, Meters

if TYPE_CHECKING:
    from skylog.broker.session import Session
    from skylog.net import Connection


class ActiveQuotas:
    """The meters of clients, and the connections that are held. `holds` counts them."""

    def __init__(self, meters: Meters, clock: Clock) -> None:
        self.meters = meters
        self._clock = clock
        self.holds = 0

    def now_s(self) -> float:
        return self._clock.monotonic()

    def limits_of(self, session: Session) -> ClientLimits | None:
        """Return the meters of a session's client, None before its login."""
        if session.login is not None and session.principal == ANONYMOUS:
            return None
        user = session.principal.partition(":")[2]
        return self.meters.of(user, session.client_id or "", self._clock.monotonic())

    def hold(self, connection: Connection, seconds: float) -> None:
        """Handle no further request of a connection for a time (KIP-219)."""
        self.holds += 1
        connection.hold(seconds)
