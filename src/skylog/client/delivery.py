"""What becomes of one message that was sent: a future, made cheap enough to be made for every message."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Message as LibraryMessage

from skylog.client.errors import DeliveryError
from skylog.model import NO_OFFSET

if TYPE_CHECKING:
    from skylog.client.engine import Engine
    from skylog.client.tier import ProducerTier

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0


class Position(NamedTuple):
    """Where a message is stored. The offset is -1 where nobody was asked for it (acks=0)."""

    topic: str
    partition: int
    offset: int


class Delivery:
    """The fate of a message, as a future: `done`, `result`, `exception`, `add_done_callback`.

    `_state` is the engine until librdkafka calls the object itself, on the thread that listens; then it is where the
    message is stored, or the error. That call takes no lock: it sets the state and then looks whether anybody waits,
    while a waiter puts itself among the engine's waiters and then looks at the state, so one of them sees the other.
    """

    __slots__ = ("_state", "topic")

    def __init__(self, engine: Engine, topic: str) -> None:
        self._state: Engine | tuple[int, int] | DeliveryError = engine
        self.topic = topic

    def __call__(self, error: LibraryError | None, message: LibraryMessage) -> None:
        engine: Any = self._state
        if error is None:
            engine.delivered_count += 1
            offset = message.offset()
            self._state = (message.partition() or 0, NO_OFFSET if offset is None or offset < 0 else offset)
        else:
            self._state = engine.fail(error, self.topic, message.partition())
        if engine.waiters:
            engine.run_waiters(self)

    def done(self) -> bool:
        return isinstance(self._state, tuple | DeliveryError)

    def result(self, timeout_s: float | None = None) -> Position:
        """Wait until the message is stored. Raises DeliveryError if it will not be, TimeoutError if it takes longer."""
        outcome = self._wait(timeout_s)
        if isinstance(outcome, DeliveryError):
            raise outcome
        return Position(self.topic, *outcome)

    def exception(self, timeout_s: float | None = None) -> DeliveryError | None:
        """Wait like `result`; what it would raise."""
        outcome = self._wait(timeout_s)
        return outcome if isinstance(outcome, DeliveryError) else None

    def add_done_callback(self, callback: Callable[[Delivery], None]) -> None:
        """Call back when the fate is known: on the thread that hears of it, or at once."""
        state = self._state
        if isinstance(state, tuple | DeliveryError):
            call_back(callback, self)
            return
        state.add_waiter(self, callback)
        if self.done():
            state.run_waiters(self)

    def withdrawn(self) -> None:
        """The message was never handed over."""

    def _wait(self, timeout_s: float | None) -> tuple[int, int] | DeliveryError:
        if not self.done():
            self._await(timeout_s)
        if isinstance(self._state, tuple | DeliveryError):
            return self._state
        raise TimeoutError(f"nothing is known yet of a message to '{self.topic}' after {timeout_s} s")

    def _await(self, timeout_s: float | None) -> None:
        settled = threading.Event()
        engine: Any = self._state
        self.add_done_callback(lambda _: settled.set())
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not settled.wait(_LOOK_S if deadline is None else min(_LOOK_S, max(deadline - time.monotonic(), 0))):
            if deadline is not None and time.monotonic() >= deadline:
                return
            if not len(engine.client) and not settled.wait(_LOOK_S):
                # Ctrl-C has hit the very moment in which it was told.
                self._state = DeliveryError(self.topic, None, "its report was interrupted", may_be_stored=True)
                return

    def __repr__(self) -> str:
        if isinstance(self._state, DeliveryError):
            return f"<Delivery to {self.topic}, failed: {self._state}>"
        if isinstance(self._state, tuple):
            return f"<Delivery to {self.topic}-{self._state[0]} at offset {self._state[1]}>"
        return f"<Delivery to {self.topic}, pending>"


class AuditedDelivery(Delivery):
    """A delivery that an audit hears of, too."""

    __slots__ = ("_sent_ms", "_tier")

    def __init__(self, engine: Engine, topic: str, tier: ProducerTier, sent_ms: int) -> None:
        self._state = engine
        self.topic = topic
        self._tier = tier
        self._sent_ms = sent_ms
        tier.sent(topic, sent_ms)

    def __call__(self, error: LibraryError | None, message: LibraryMessage) -> None:
        Delivery.__call__(self, error, message)
        if error is None:
            key: Any = message.key()
            size_bytes = len(message) + len(key) if key else len(message)
            self._tier.acknowledged(self.topic, self._sent_ms, message.timestamp()[1], size_bytes)
        else:
            failure = self.exception(0)
            self._tier.failed(self.topic, self._sent_ms, may_be_stored=failure is not None and failure.may_be_stored)

    def withdrawn(self) -> None:
        self._tier.failed(self.topic, self._sent_ms, may_be_stored=False)


def call_back(callback: Callable[[Any], object], argument: Any) -> None:
    """Run what an application wants to be called with; if that fails, nothing else does."""
    try:
        callback(argument)
    except Exception:
        logger.exception("a callback has failed")
