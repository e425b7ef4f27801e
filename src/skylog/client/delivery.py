"""The result of sending one message: a future, cheap enough to create one for every message."""

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

_CHECK_S: Final = 1.0


class Position(NamedTuple):
    """Where a message is stored. The offset is -1 if the broker did not return one (acks=0)."""

    topic: str
    partition: int
    offset: int


class Delivery:
    """The outcome of a sent message, as a future: `done`, `result`, `exception`, `add_done_callback`.

    `_state` is the engine until librdkafka calls the object, on the thread that polls; then it is the position or the
    error. That call takes no lock: it sets the state and then checks for waiters, while a waiter registers with the
    engine and then checks the state. So at least one of them sees the other.
    """

    __slots__ = ("_state", "topic")

    def __init__(self, engine: Engine, topic: str) -> None:
        self._state: Engine | tuple[int, int] | DeliveryError = engine
        self.topic = topic

    def __call__(self, error: LibraryError | None, message: LibraryMessage) -> None:
        engine: Any = self._state
        try:
            if error is None:
                offset = message.offset()
                self._state = (message.partition() or 0, NO_OFFSET if offset is None or offset < 0 else offset)
                engine.delivered_count += 1
            else:
                self._state = engine.fail(error, self.topic, message.partition())
        except SystemError:  # the exception of a fatal error was pending (see `Engine.poll`), and is gone now
            Delivery.__call__(self, error, message)
            return
        if engine.waiters:
            engine.run_waiters(self)

    def done(self) -> bool:
        """Whether the outcome is known."""
        return isinstance(self._state, tuple | DeliveryError)

    def result(self, timeout_s: float | None = None) -> Position:
        """Wait until the message is stored. Raises DeliveryError if it failed, TimeoutError if it takes longer."""
        outcome = self._wait(timeout_s)
        if isinstance(outcome, DeliveryError):
            raise outcome
        return Position(self.topic, *outcome)

    def exception(self, timeout_s: float | None = None) -> DeliveryError | None:
        """Wait like `result`, and return the DeliveryError that it would raise, or None."""
        outcome = self._wait(timeout_s)
        return outcome if isinstance(outcome, DeliveryError) else None

    def add_done_callback(self, callback: Callable[[Delivery], None]) -> None:
        """Call `callback` when the outcome is known: on the thread that polls, or immediately."""
        state = self._state
        if isinstance(state, tuple | DeliveryError):
            run_callback(callback, self)
            return
        state.add_waiter(self, callback)
        if self.done():
            state.run_waiters(self)

    def withdrawn(self) -> None:
        """Called if the message was never passed to librdkafka."""

    def _wait(self, timeout_s: float | None) -> tuple[int, int] | DeliveryError:
        if not self.done():
            self._await(timeout_s)
        if isinstance(self._state, tuple | DeliveryError):
            return self._state
        raise TimeoutError(f"no result of a message to '{self.topic}' after {timeout_s} s")

    def _await(self, timeout_s: float | None) -> None:
        settled = threading.Event()
        engine: Any = self._state
        if engine.is_inherited:
            self._state = DeliveryError(self.topic, None, "the parent process sends it", may_be_stored=True)
            return
        self.add_done_callback(lambda _: settled.set())
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not settled.wait(_CHECK_S if deadline is None else min(_CHECK_S, max(deadline - time.monotonic(), 0))):
            if deadline is not None and time.monotonic() >= deadline:
                return
            if not len(engine.client) and not settled.wait(_CHECK_S):
                # Ctrl-C interrupted the delivery callback, which will not run again.
                self._state = DeliveryError(self.topic, None, "its report was interrupted", may_be_stored=True)
                return

    def __repr__(self) -> str:
        if isinstance(self._state, DeliveryError):
            return f"<Delivery to {self.topic}, failed: {self._state}>"
        if isinstance(self._state, tuple):
            return f"<Delivery to {self.topic}-{self._state[0]} at offset {self._state[1]}>"
        return f"<Delivery to {self.topic}, pending>"


class AuditedDelivery(Delivery):
    """A delivery that also reports to an audit tier."""

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


def run_callback(callback: Callable[[Any], object], argument: Any) -> None:
    """Run a callback of the application, and log its exception.

    Also that of `sys.exit`, or of a cancelled task: it would end the thread that polls, and no result would ever come.
    """
    try:
        callback(argument)
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.exception("a callback failed")
