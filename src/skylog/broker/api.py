"""What a handler is: the unit in which the broker's APIs are written, one module each in `handlers`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from skylog.net import Connection, PendingReply, Reply
from skylog.protocol.apis import API_SPECS, ApiKey
from skylog.protocol.schema import Message

if TYPE_CHECKING:
    from skylog.broker.broker import Broker


class Context(NamedTuple):
    """Who asks, and in which version."""

    broker: Broker
    connection: Connection
    version: int
    correlation_id: int
    client_id: str | None


Handle = Callable[[Context, Any], Message | Awaitable[Message]]
"""A decoded request to its response, at once or later."""

HandleFrame = Callable[[Context, memoryview, int], Reply | PendingReply | Awaitable[Reply | None] | None]
"""A request still in its frame, with the position of its body, to the finished reply: for the data path.

An awaitable is cancelled when the client leaves."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API that is served: in which versions, and by whom.

    `advertised_from` is lower than `low` only where clients draw conclusions from versions they never send. An API that
    `may_wait` answers when others have done something; a broker that stops does not wait for it. Answers of one that
    `has_large_answers` are encoded in a thread.
    """

    key: ApiKey
    low: int
    high: int
    handle: Handle | None = None
    handle_frame: HandleFrame | None = None
    advertised_from: int | None = None
    may_wait: bool = False
    has_large_answers: bool = False

    def __post_init__(self) -> None:
        coded = API_SPECS[self.key].versions
        if self.low not in coded or self.high not in coded:
            raise ValueError(f"{self.key.name} {self.low}-{self.high} is served, but only {coded} can be decoded")
