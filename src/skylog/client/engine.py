"""librdkafka's producer, and who hears what became of its messages: its own thread, or those who send."""

from __future__ import annotations

import atexit
import ctypes
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from confluent_kafka import Message as LibraryMessage
from confluent_kafka import Producer as LibraryProducer

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.delivery import Delivery, call_back
from skylog.client.errors import BrokerUnreachableError, DeliveryError
from skylog.client.tier import ProducerAudit
from skylog.errors import ErrorCode, KafkaError, SkylogError

logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
EXIT_S: Final = 30.0
LISTEN_EVERY: Final = 64
_WARN_EVERY_S: Final = 10.0
_NEVER: Final = -1e9
_MAKE_TOPIC_EVERY_S: Final = 5.0
_ANY_PARTITION: Final = -1
_REST_S: Final = 0.02

# After these nobody can tell whether the broker has stored the message.
_UNKNOWN_FATE: Final = frozenset(
    {
        LibraryError._MSG_TIMED_OUT,
        LibraryError._TIMED_OUT,
        LibraryError._TRANSPORT,
        LibraryError._PURGE_INFLIGHT,
        int(ErrorCode.REQUEST_TIMED_OUT),
        int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    }
)
_GIVEN_UP: Final = frozenset({LibraryError._MSG_TIMED_OUT, LibraryError._PURGE_QUEUE, LibraryError._PURGE_INFLIGHT})


class Engine:
    """A running producer.

    `produce` is librdkafka's own function and never waits: BufferError says that its queue is full. Delivery reports
    are heard by one thread at a time. While messages are sent, those who send listen now and then: a thread beside them
    would take the interpreter from them for every batch. Otherwise the engine's own thread does.
    """

    def __init__(self, connection: Connection, settings: Mapping[str, Any], audit: ProducerAudit | None = None) -> None:
        self.delivered_count = 0
        self.failed_count = 0
        self.sent_count = 0
        self._hearing = threading.Lock()
        self.waiters: dict[Delivery, list[Callable[[Delivery], None]]] = {}
        self._waiting = threading.Lock()
        self._connection = connection
        self.client: LibraryProducer = connection.producer({**settings, "on_delivery": self._on_delivery})
        self.produce = self.client.produce
        self.tier = None if audit is None else audit.open_producer(self.publish)
        self._turn = threading.Condition()
        self._flushing = self._hurried = 0  # how many wait for a flush; for anything at all
        self._stopping = False
        self._warned_at = self._tried_topic_at = _NEVER
        self._unsaid = 0
        self._topics_made: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="skylog-producer", daemon=True)
        self._thread.start()
        _engines.add(self)
        _close_with_the_worker()

    def listen(self) -> None:
        """Hear what there is to hear, unless somebody does already."""
        if self._hearing.acquire(blocking=False):
            try:
                call_back(self.client.poll, 0)
            finally:
                self._hearing.release()

    def wait(self, timeout_s: float) -> None:
        """Wait until the thread has heard something, or for so long."""
        with self._turn:
            self._hurried += 1
            try:
                self._turn.wait(timeout_s)
            finally:
                self._hurried -= 1

    def flush(self, timeout_s: float | None) -> int:
        """Send without lingering and wait; how many messages are still not settled."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._turn:
            self._flushing += 1
            self._hurried += 1
            try:
                while len(self.client) and self._thread.is_alive():
                    left_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
                    if left_s <= 0:
                        break
                    self._turn.wait(left_s)
            finally:
                self._flushing -= 1
                self._hurried -= 1
        return len(self.client)

    def close(self, timeout_s: float | None) -> int:
        """Flush, publish the audit's last reports, and end; how many messages have been given up."""
        if not self._thread.is_alive():
            return 0
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        left = self.flush(timeout_s)
        if left:
            self.client.purge(in_queue=True, in_flight=True, blocking=False)
            self.flush(POLL_S)
        if self.tier is not None:
            self._tried_topic_at = _NEVER  # the last reports do not wait: there is no later
            self.tier.close()
            self.flush(None if deadline is None else max(deadline - time.monotonic(), POLL_S))
            self.client.purge(in_queue=True, in_flight=True, blocking=False)
        self.abandon()
        self._thread.join()
        return left

    def abandon(self) -> None:
        """Nobody will send any more: end as soon as everything is settled."""
        self._stopping = True

    def forsake(self) -> None:
        """In the child of a fork: the threads are gone, and freeing librdkafka's handle would wait for them."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.client))
        _engines.discard(self)

    def publish(self, topic: str, value: bytes, done: Callable[[bool], None]) -> None:
        """Send an audit's report; see `tier.Publish`. It passes no tier itself and is not counted."""

        def on_delivery(error: LibraryError | None, _message: LibraryMessage) -> None:
            done(error is None)

        try:
            self._make_topic(topic)
            self.produce(topic, value, None, _ANY_PARTITION, on_delivery)
        except (BufferError, KafkaException, SkylogError) as error:
            logger.debug("a report of the audit waits: %s", error)  # the audit tries again until it is stored
            done(False)

    def fail(self, error: LibraryError, topic: str, partition: int | None) -> DeliveryError:
        """A message has failed: count it, and say so, now and then, even if nobody asks for the result."""
        failure = self.explain(error, topic, partition)
        self.failed_count += 1
        self._unsaid += 1
        if time.monotonic() - self._warned_at >= _WARN_EVERY_S:
            logger.warning("%s (failed since the last such line: %d)", failure, self._unsaid)
            self._warned_at = time.monotonic()
            self._unsaid = 0
        return failure

    def explain(self, error: LibraryError, topic: str, partition: int | None) -> DeliveryError:
        code = error.code()
        if code in (LibraryError._UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            reason = f"there is no such topic; create it with: skylog topics create {topic}"
        elif code == LibraryError._UNKNOWN_PARTITION:
            reason = f"there is no such partition; see: skylog topics describe {topic}"
        elif code in _GIVEN_UP and self._connection.down_reason is not None:
            reason = str(BrokerUnreachableError(self._connection.bootstrap, self._connection.down_reason))
        elif code in _GIVEN_UP:
            reason = "no acknowledgement came in time"
        else:
            reason = error.str()
        where = None if partition is None or partition < 0 else partition
        return DeliveryError(topic, where, reason, may_be_stored=code in _UNKNOWN_FATE)

    def add_waiter(self, delivery: Delivery, waiter: Callable[[Delivery], None]) -> None:
        with self._waiting:
            self.waiters.setdefault(delivery, []).append(waiter)

    def run_waiters(self, delivery: Delivery) -> None:
        """The fate of a message is known: tell those who wait for it, once."""
        with self._waiting:
            waiters = self.waiters.pop(delivery, ())
        for waiter in waiters:
            call_back(waiter, delivery)

    def _on_delivery(self, error: LibraryError | None, message: LibraryMessage) -> None:
        """Of messages that nobody holds a Delivery of."""
        if error is None:
            self.delivered_count += 1
        else:
            self.fail(error, message.topic() or "", message.partition())

    def _make_topic(self, topic: str) -> None:
        if topic in self._topics_made:
            return
        if time.monotonic() - self._tried_topic_at < _MAKE_TOPIC_EVERY_S:
            raise SkylogError(f"topic '{topic}' could not be created a moment ago")
        self._tried_topic_at = time.monotonic()
        try:
            Admin(self._connection.another()).create_topic(topic, 1)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._topics_made.add(topic)

    def _run(self) -> None:
        client = self.client
        delivered_count = sent_count = 0
        while not self._stopping or len(client):
            if self.sent_count - sent_count >= LISTEN_EVERY and not self.waiters and not self._hurried:
                sent_count = self.sent_count
                time.sleep(_REST_S)  # those who send are listening
                continue
            with self._hearing:
                call_back(client.flush if self._flushing else client.poll, POLL_S)
            if self.delivered_count != delivered_count:
                delivered_count = self.delivered_count
                self._connection.down_reason = None
            if self.tier is not None:
                call_back(lambda tier: tier.tick(), self.tier)
            with self._turn:
                self._turn.notify_all()
        _engines.discard(self)


_engines: set[Engine] = set()


def _close_at_exit() -> None:
    """What is still queued when the process ends is sent first."""
    deadline = time.monotonic() + EXIT_S
    for engine in tuple(_engines):
        left = engine.close(max(deadline - time.monotonic(), POLL_S))
        if left:
            logger.error("%d messages were not delivered before the process ended", left)


def _close_with_the_worker() -> None:
    """A process of multiprocessing's ends without exit handlers, and has its own."""
    if multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_at_exit, exitpriority=100)


atexit.register(_close_at_exit)
