"""What the broker keeps for one connection: its listener, its principal, its client, and its fast lanes."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from skylog.model import MAX_TOPIC_NAME_LENGTH
from skylog.net import Connection, FrameHandler, Shortcut

if TYPE_CHECKING:
    from skylog.broker.producer_lanes import ProducerLanes
    from skylog.broker.quotas.active import ActiveQuotas
    from skylog.broker.rejected_batches import RejectedBatches
    from skylog.broker.router import Router
    from skylog.broker.security.access import Rights
    from skylog.broker.security.login import Login

PLAINTEXT: Final = "PLAINTEXT"
ANONYMOUS: Final = "User:ANONYMOUS"
MAX_NOTED_TOPICS: Final = 100
_NO_TOPICS: Final[frozenset[str]] = frozenset()  # shared by all sessions: there may be very many
_numbers = count()


class Session:
    """Made by the router when a client connects, and kept until it leaves.

    Sessions are numbered in the order in which they begin. `listener` and `principal` have Kafka's form. `lanes` is
    None until the client has sent a produce request that can repeat itself, `rejected` until one was rejected.
    `written` and `read` are the first topics that the client has produced to and fetched. `login` is
    None unless the listener has logins, `rights` unless there is an authorizer.
    """

    __slots__ = (
        "client_id",
        "connection",
        "handle",
        "lanes",
        "listener",
        "login",
        "number",
        "principal",
        "read",
        "rejected",
        "rights",
        "shortcut",
        "software",
        "written",
    )

    def __init__(self, connection: Connection, router: Router, listener: str = PLAINTEXT) -> None:
        self.connection = connection
        self.number = next(_numbers)
        self.listener = listener
        self.principal = ANONYMOUS
        self.login: Login | None = None
        self.rights: Rights | None = router.rights_of(self)
        self.client_id: str | None = None
        self.software = ""
        self.written = self.read = _NO_TOPICS
        self.lanes: ProducerLanes | None = None
        self.rejected: RejectedBatches | None = None
        self.handle: FrameHandler = partial(router.route, self)
        self.shortcut: Shortcut | None = None

    def close(self) -> None:
        self.handle = _ignore
        self.lanes = self.shortcut = None
        if self.login is not None:
            self.login.close()

    def note_written(self, topic: str) -> None:
        """Add a topic to those written. A client with very many topics is described by the first ones."""
        if topic not in self.written and len(self.written) < MAX_NOTED_TOPICS and len(topic) <= MAX_TOPIC_NAME_LENGTH:
            self.written |= {topic}

    def note_read(self, topic: str) -> None:
        """Add a topic to those read, likewise."""
        if topic not in self.read and len(self.read) < MAX_NOTED_TOPICS:
            self.read |= {topic}

    def open_lanes(self, lanes: ProducerLanes, quotas: ActiveQuotas | None = None) -> None:
        self.lanes = lanes
        self.meter_lanes(quotas)

    def meter_lanes(self, quotas: ActiveQuotas | None) -> None:
        """Count what the fast lanes serve against these quotas, or against none."""
        if self.lanes is None:
            return
        if quotas is None:
            self.shortcut = self.lanes.serve
        else:
            from skylog.broker.quotas.lanes import MeteredLanes

            self.shortcut = MeteredLanes(self.lanes, quotas, self).serve


def _ignore(frame: memoryview) -> None:
    """Handle a frame of a connection that is closed."""
