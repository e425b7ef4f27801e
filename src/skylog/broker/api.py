"""The form of a handler. Each API of the broker is one module in `handlers`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from skylog.broker.security.needs import Need
from skylog.errors import ErrorCode
from skylog.net import Connection, PendingReply, Reply
from skylog.protocol.apis import API_SPECS, ApiKey
from skylog.protocol.schema import Message

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.quotas.usage import Usage
    from skylog.broker.session import Session


class Context(NamedTuple):
    """The session that a request comes from, and what its header says.

    `usage` is what the request uses of its client's quotas, None if there are no quotas.
    """

    broker: Broker
    session: Session
    version: int
    correlation_id: int
    client_id: str | None
    usage: Usage | None = None

    @property
    def connection(self) -> Connection:
        return self.session.connection


Handle = Callable[[Context, Any], Message | Awaitable[Message]]
"""Turns a decoded request into its response, at once or later."""

HandleFrame = Callable[[Context, memoryview, int], Reply | PendingReply | Awaitable[Reply | None] | None]
"""Turns a frame, given the position of the request's body in it, into the finished reply. For the data path.

An awaitable is cancelled when the client leaves."""


Refuse = Callable[[Any, ErrorCode], Message | Awaitable[Message]]
"""Returns the response to a request that the client may not send."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API that the broker serves: its versions, its handler and the rights that it needs.

    The router checks what a request `needs` as a whole, and answers with what `refuse` returns, by default the error
    alone. The handler checks what it needs for each row.

    `advertised_from` is lower than `low` only where clients draw conclusions from versions they never send. An API that
    `may_wait` responds when other clients have done something; a stopping broker does not wait for it. Responses of an
    API that `has_large_answers` are encoded in a thread.
    """

    key: ApiKey
    low: int
    high: int
    handle: Handle | None = None
    handle_frame: HandleFrame | None = None
    advertised_from: int | None = None
    may_wait: bool = False
    has_large_answers: bool = False
    needs: tuple[Need, ...] = ()
    refuse: Refuse | None = None

    def __post_init__(self) -> None:
        coded = API_SPECS[self.key].versions
        if self.low not in coded or self.high not in coded:
            raise ValueError(f"{self.key.name} {self.low}-{self.high} is served, but only {coded} can be decoded")
