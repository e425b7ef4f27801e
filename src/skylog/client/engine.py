"""Wraps librdkafka's producer and polls its delivery reports: on a thread of its own, or on the sending threads."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from confluent_kafka import Message as LibraryMessage
from confluent_kafka import Producer as LibraryProducer

from skylog.client.admin import Admin
from skylog.client.connection import Connection
from skylog.client.delivery import Delivery, run_callback
from skylog.client.errors import DeliveryError
from skylog.client.handles import keep_handle
from skylog.client.tier import ProducerTierFactory
from skylog.errors import ErrorCode, KafkaError, SkylogError

if TYPE_CHECKING:
    from skylog.client.transaction import Transaction

logger = logging.getLogger(__name__)

POLL_S: Final = 0.05
EXIT_S: Final = 30.0
POLL_EVERY: Final = 64
_WARN_EVERY_S: Final = 10.0
_NEVER: Final = -1e9
_CREATE_TOPIC_EVERY_S: Final = 5.0
_ANY_PARTITION: Final = -1
_IDLE_S: Final = 0.02
_CONNECT_S: Final = 1.0
_STOP_S: Final = 1.0  # at exit: a daemon thread may send on and on

# After these errors it is unknown whether the broker has stored the message.
_UNKNOWN_OUTCOME: Final = frozenset(
    {
        LibraryError._MSG_TIMED_OUT,
        LibraryError._TIMED_OUT,
        LibraryError._TRANSPORT,
        LibraryError._PURGE_INFLIGHT,
        int(ErrorCode.REQUEST_TIMED_OUT),
        int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    }
)
_PURGED: Final = frozenset({LibraryError._PURGE_QUEUE, LibraryError._PURGE_INFLIGHT})
_GIVEN_UP: Final = _PURGED | {LibraryError._MSG_TIMED_OUT}
_MAY_EXIST: Final = (
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,  # of who may not create it, whether or not it exists
)


class Engine:
    """A running producer.

    `produce` is librdkafka's own function. It never waits, and raises BufferError if the queue is full. One thread at a
    time polls delivery reports. While messages are sent, the sending threads poll now and then: a separate thread would
    take the interpreter lock from them for every batch. Otherwise the engine's own thread polls.
    """

    def __init__(
        self, connection: Connection, settings: Mapping[str, Any], audit: ProducerTierFactory | None = None
    ) -> None:
        self.delivered_count = 0
        self.failed_count = 0
        self.sent_count = 0
        self.unfinished: Transaction | None = None  # ended, but librdkafka does not know the result yet
        self.is_inherited = False  # in the child of a fork: the parent sends the messages, and gets their results
        self.is_awaited = False  # then this thread polls all the time: a sender that awaits each result does not
        self._started_s = time.monotonic()
        self._polling = threading.Lock()
        self.waiters: dict[Delivery, list[Callable[[Delivery], None]]] = {}
        self._waiting = threading.Lock()
        self._connection = connection
        self._is_transactional = "transactional.id" in settings
        self.client: LibraryProducer = connection.producer({**settings, "on_delivery": _reporter(self)})
        self.produce = self.client.produce
        self.tier = None if audit is None else audit.open_producer(self.publish)
        self._polled = threading.Condition()
        self._flushing = self._waiting_count = 0  # threads that wait for a flush; for any poll
        self._stopping = False
        self._warned_at = self._tried_topic_at = _NEVER
        self._unlogged = 0
        self._created_topics: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="skylog-producer", daemon=True)
        self._thread.start()
        _engines.add(self)
        _close_with_the_worker()

    def poll(self) -> None:
        """Handle pending delivery reports, unless another thread is doing it.

        If librdkafka has reported a fatal error just before, confluent-kafka calls the callback of a report with an
        exception pending. The first function in C that the callback calls then seems to raise SystemError.
        """
        if self._polling.acquire(blocking=False):
            try:
                _handle_reports(self.client.poll, 0)
            finally:
                self._polling.release()

    def wait(self, timeout_s: float) -> None:
        """Wait until the engine's thread has polled once, at most `timeout_s`."""
        with self._polled:
            self._waiting_count += 1
            try:
                self._polled.wait(timeout_s)
            finally:
                self._waiting_count -= 1

    def flush(self, timeout_s: float | None) -> int:
        """Send without lingering and wait; return the number of messages without a result."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._polled:
            self._flushing += 1
            self._waiting_count += 1
            try:
                while len(self.client) and self._thread.is_alive():
                    left_s = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
                    if left_s <= 0:
                        break
                    self._polled.wait(left_s)
            finally:
                self._flushing -= 1
                self._waiting_count -= 1
        return len(self.client)

    def close(self, timeout_s: float | None) -> int:
        """Flush, publish the audit's last reports, and stop; return the number of undelivered messages."""
        if not self._thread.is_alive():
            return 0
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            left = self.flush(timeout_s)
        except BaseException:  # Ctrl-C while it waits: the exit of the process does not wait for these messages again
            self._give_up()
            self.stop_when_empty()
            raise
        if left:
            self._give_up()
        if self.tier is not None:
            self._tried_topic_at = _NEVER  # the last reports cannot wait for another attempt
            self.tier.close()
            self.flush(None if deadline is None else max(deadline - time.monotonic(), POLL_S))
            self.client.purge(in_queue=True, in_flight=True, blocking=False)
        self.stop_when_empty()
        self._thread.join(None if deadline is None else max(deadline - time.monotonic(), _STOP_S))
        return left

    def _give_up(self) -> None:
        """Let all messages without a result fail."""
        self.client.purge(in_queue=True, in_flight=True, blocking=False)
        self.flush(POLL_S)

    def stop_when_empty(self) -> None:
        """Stop the thread as soon as every message has a result. No more messages may be sent."""
        self._stopping = True

    @property
    def is_connecting(self) -> bool:
        """Whether it has just started and the first messages are on their way."""
        is_new = time.monotonic() - self._started_s < _CONNECT_S
        return is_new and not self.delivered_count and not self.failed_count and len(self.client) > 0

    def publish(self, topic: str, value: bytes, done: Callable[[bool], None]) -> None:
        """Send a report of the audit; see `tier.Publish`. Reports are not audited and not counted."""

        def on_delivery(error: LibraryError | None, _message: LibraryMessage) -> None:
            done(error is None)

        try:
            self._create_topic(topic)
            self.produce(topic, value, None, _ANY_PARTITION, on_delivery)
        except (BufferError, KafkaException, SkylogError) as error:
            logger.debug("an audit report is delayed: %s", error)  # the audit retries until it is stored
            done(False)

    def fail(self, error: LibraryError, topic: str, partition: int | None) -> DeliveryError:
        """Count a failed message and log it, at most every few seconds, even if the caller ignores the result."""
        failure = self.explain(error, topic, partition)
        self.failed_count += 1
        self._unlogged += 1
        if time.monotonic() - self._warned_at >= _WARN_EVERY_S:
            logger.warning("%s (failed since the last such line: %d)", failure, self._unlogged)
            self._warned_at = time.monotonic()
            self._unlogged = 0
        return failure

    def explain(self, error: LibraryError, topic: str, partition: int | None) -> DeliveryError:
        code = error.code()
        if code in (LibraryError._UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            reason = f"there is no such topic; create it with: skylog topics create {topic}"
        elif code == LibraryError._UNKNOWN_PARTITION:
            reason = f"there is no such partition; see: skylog topics describe {topic}"
        elif code == ErrorCode.MESSAGE_TOO_LARGE and partition is None:  # librdkafka refuses it before it is sent
            reason = 'it is larger than the producer allows; raise the limit with config={"message.max.bytes": …}'
        elif code == ErrorCode.MESSAGE_TOO_LARGE:
            raise_limit = f"skylog topics alter {topic} --config max.message.bytes=…"
            reason = f"its batch is larger than the topic allows; raise the limit with: {raise_limit}"
        elif code == LibraryError._STATE:
            reason = "a producer with a transactional id sends inside of `with producer.transaction()`"
        elif code in _PURGED and self._is_transactional:
            reason = "its transaction was aborted"
        elif code in _GIVEN_UP and self._connection.down_reason is not None:
            reason = str(self._connection.unreachable())
        elif code in _GIVEN_UP:
            reason = "no acknowledgement arrived in time"
        else:
            reason = error.str()
        where = None if partition is None or partition < 0 else partition
        return DeliveryError(topic, where, reason, may_be_stored=code in _UNKNOWN_OUTCOME)

    def add_waiter(self, delivery: Delivery, waiter: Callable[[Delivery], None]) -> None:
        with self._waiting:
            self.waiters.setdefault(delivery, []).append(waiter)

    def run_waiters(self, delivery: Delivery) -> None:
        """Call the waiters of a message whose result is known, once."""
        with self._waiting:
            waiters = self.waiters.pop(delivery, ())
        for waiter in waiters:
            run_callback(waiter, delivery)

    def note_report(self, error: LibraryError | None, message: LibraryMessage) -> None:
        """Handle the report of a message that was sent without a Delivery."""
        if error is None:
            self.delivered_count += 1
            return
        self.fail(error, message.topic() or "", message.partition())

    def _create_topic(self, topic: str) -> None:
        if topic in self._created_topics:
            return
        if time.monotonic() - self._tried_topic_at < _CREATE_TOPIC_EVERY_S:
            raise SkylogError(f"topic '{topic}' could not be created a moment ago")
        self._tried_topic_at = time.monotonic()
        try:
            Admin(self._connection.another()).create_topic(topic, 1)
        except KafkaError as error:
            if error.code not in _MAY_EXIST:
                raise
        self._created_topics.add(topic)

    def _run(self) -> None:
        client = self.client
        delivered_count = sent_count = 0
        while not self._stopping or len(client):
            are_senders_busy = self.sent_count - sent_count >= POLL_EVERY and not self.is_awaited
            if are_senders_busy and not self.waiters and not self._waiting_count:
                sent_count = self.sent_count
                time.sleep(_IDLE_S)  # the sending threads poll
                continue
            with self._polling:
                _handle_reports(client.flush if self._flushing else client.poll, POLL_S)
            if self.delivered_count != delivered_count:
                delivered_count = self.delivered_count
                self._connection.down_reason = None
            if len(client):
                self._connection.take_errors(warns=True)  # logs that no broker can be reached
            if self.tier is not None:
                run_callback(lambda tier: tier.tick(), self.tier)
            with self._polled:
                self._polled.notify_all()
        self.tier = None  # it refers to `publish`
        _engines.discard(self)


def _reporter(engine: Engine) -> Callable[[LibraryError | None, LibraryMessage], None]:
    """Return the callback for reports, without a reference to the engine, whose client refers to the callback.

    Otherwise only the garbage collector would free the client of a closed producer. It would keep its connections, and
    create a deleted topic again when it refreshes its metadata.
    """
    reference = weakref.ref(engine)

    def report(error: LibraryError | None, message: LibraryMessage) -> None:
        try:
            found = reference()
        except SystemError:  # see `Engine.poll`
            found = reference()
        if found is not None:
            found.note_report(error, message)

    return report


def _handle_reports(poll: Callable[[float], object], timeout_s: float) -> None:
    """Let librdkafka report. It raises the error that ends a producer, such as one that is fenced."""
    try:
        poll(timeout_s)
    except KafkaException as error:
        logger.warning("the producer cannot go on: %s", error.args[0].str())
    except SystemError:  # its exception is lost if a report came with it
        logger.warning("the producer cannot go on after a fatal error")
    except Exception:
        logger.exception("a callback failed")


_engines: set[Engine] = set()


def _close_at_exit() -> None:
    """Send queued messages before the process exits."""
    deadline = time.monotonic() + EXIT_S
    for engine in tuple(_engines):
        left = engine.close(max(deadline - time.monotonic(), POLL_S))
        if left:
            logger.error("%d messages were not delivered before the process exited", left)
            keep_handle(engine.client)  # freeing it waits for a thread that may be looking for a host


def _let_connect() -> None:
    """Called before a fork: wait until new producers have connected, for a second at most.

    librdkafka resolves host names in its threads, and the C library holds a lock meanwhile. A child that is forked at
    that moment can never resolve a name.
    """
    for engine in tuple(_engines):
        while engine.is_connecting:
            time.sleep(_IDLE_S / 10)


def _leave_to_parent() -> None:
    """Called in the child of a fork: what the parent has sent is not this process's concern."""
    for engine in tuple(_engines):
        engine.is_inherited = True
    _engines.clear()


def _close_with_the_worker() -> None:
    """Register the exit handler in a multiprocessing worker, which skips those of `atexit`."""
    if multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_at_exit, exitpriority=100)


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_let_connect, after_in_child=_leave_to_parent)
