"""Sends messages."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from confluent_kafka import KafkaException

from skylog.client.connection import Connection
from skylog.client.delivery import AuditedDelivery, Delivery
from skylog.client.engine import EXIT_S, POLL_EVERY, POLL_S, Engine
from skylog.client.errors import BufferFullError
from skylog.client.partitioners import CustomPartitioner, Partitioner, library_name
from skylog.client.serializers import Serializer, check_header_names, serialize
from skylog.client.tier import ProducerTierFactory
from skylog.client.transaction import Transaction, start_transactions
from skylog.errors import ConfigError, SkylogError
from skylog.tracing import IS_AVAILABLE, HeaderPairs, with_current_span

if TYPE_CHECKING:
    from skylog.client.consumer import Consumer

Acks = Literal["all", 0, 1]

MAX_BLOCK_S: Final = 60.0
_ANY_PARTITION: Final = -1
_BATCH_S: Final = 0.2
_new: Final = object.__new__


class Producer:
    """Sends messages to a cluster: asynchronously and in batches. Each message is stored once and in order.

        producer = Producer()
        producer.send("page_views", {"page": "/", "user": 7}, key="7")
        producer.flush()

    `send` queues a message and returns a `Delivery`, the future of its result. All failures are logged and counted,
    even if you ignore the future. You may send from any thread. The producer connects with the first message, and again
    in the child of a fork. When the process exits, queued messages are sent first.

    bootstrap: one or several brokers of the cluster: "a:9092,b:9092"; defaults to the environment variable
        SKYLOG_BOOTSTRAP, then to 127.0.0.1:9092.
    acks: "all" waits for all in-sync replicas and makes retries harmless (idempotence); 1: the leader; 0: none.
    compression: none, gzip, snappy, lz4 or zstd.
    partitioner: murmur2 (like the Java clients), keyed, random, or a function; see `skylog.client.partitioners`.
    serializer, key_serializer: functions that return bytes; see `skylog.client.serializers`.
    transactional_id: names the producer across restarts, and makes it send in transactions; see `transaction`.
    audit: counts acknowledged messages; see `skylog.audit.ProducerAudit`. Not for a producer with transactions.
    config: librdkafka's own settings, such as {"linger.ms": 50}.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        acks: Acks = "all",
        compression: str = "none",
        partitioner: str | Partitioner = "murmur2",
        serializer: Serializer = serialize,
        key_serializer: Serializer = serialize,
        transactional_id: str | None = None,
        audit: ProducerTierFactory | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        if acks not in ("all", 0, 1):
            raise ConfigError(f"acks={acks!r}: expected 'all', 1 or 0")
        if transactional_id is not None:
            if not transactional_id or acks != "all":
                raise ConfigError("transactions need a transactional_id that is not empty, and acks='all'")
            if audit is not None:
                raise ConfigError("an audit counts acknowledged messages, and a transaction may still be aborted")
        self._transactional_id = transactional_id
        self._choose = partitioner if callable(partitioner) else None
        self._settings: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "partitioner": library_name(partitioner) if isinstance(partitioner, str) else "random",
            "topic.metadata.propagation.max.ms": 10_000,
            **({} if transactional_id is None else {"transactional.id": transactional_id}),
            **(config or {}),
        }
        self._connection = Connection(bootstrap, config)
        # Applications send what their serializers take: that is not checked here.
        self._serializer: Callable[[Any], bytes] | None = None if serializer is serialize else serializer
        self._key_serializer: Callable[[Any], bytes] = key_serializer
        self._audit = audit
        self._starting = threading.RLock()  # a signal handler may send while it starts
        self.is_awaited = False  # whether an event loop waits for each result; set before the first message
        self.delivery_kind = Delivery
        self._engine: Engine | None = None
        self._closed_engine: Engine | None = None  # with messages that were not delivered
        self._final_counts = (0, 0)
        self._stop_if_dropped: weakref.finalize[[], Producer] | None = None
        self._partitioner: CustomPartitioner | None = None
        self._closed = False
        self._batches: dict[int, list[Delivery]] = {}  # open batches, by thread
        _producers.add(self)

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        headers: HeaderPairs | None = None,
        timestamp_ms: int = 0,
        wait: bool = True,
    ) -> Delivery:
        """Queue a message. Raises SkylogError for a message that can never be sent.

        Without a value it is a tombstone. `timestamp_ms` defaults to the current time. If the queue is full, `send`
        waits for up to a minute, then raises BufferFullError; immediately with `wait=False`.
        """
        engine = self._engine or self._start()
        if value is not None and (type(value) is not bytes or self._serializer is not None):
            value = (self._serializer or serialize)(value)
        if partition is None:
            partition = _ANY_PARTITION if self._partitioner is None else self._partitioner.partition(topic, key)
        if key is not None:
            key = self._key_serializer(key)
        if headers:
            check_header_names(headers)
        if IS_AVAILABLE:
            headers = with_current_span(headers)
        if engine.tier is None:
            delivery = _new(self.delivery_kind)  # skips __init__, which costs more than the object
            delivery._state = engine
            delivery.topic = topic
        else:
            timestamp_ms = timestamp_ms or time.time_ns() // 1_000_000
            delivery = AuditedDelivery(engine, topic, engine.tier, timestamp_ms)
        try:
            engine.produce(topic, value, key, partition, delivery, None, timestamp_ms, headers)
        except BufferError:
            message = (topic, value, key, partition, delivery, None, timestamp_ms, headers)
            self._send_blocking(engine, message, MAX_BLOCK_S if wait else 0)
        except KafkaException as error:
            delivery.withdrawn()
            raise engine.explain(error.args[0], topic, None) from error
        except Exception:
            delivery.withdrawn()
            raise
        engine.sent_count += 1
        if not engine.sent_count % POLL_EVERY:
            engine.poll()
        if self._batches and (batch := self._batches.get(threading.get_ident())) is not None:
            batch.append(delivery)
        return delivery

    def offer(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: HeaderPairs | None = None,
    ) -> bool:
        """Queue a message and return True, or return False if the queue is full. Never waits.

        The result is only counted and logged. Raises DeliveryError for a message that can never be sent, such as one
        that is too large. With an empty list of headers, the message does not get the trace of the current span.
        """
        engine = self._engine or self._start()
        if self._partitioner is not None:
            raise ConfigError("a partitioner function may have to wait for the broker: use `send` instead of `offer`")
        if headers:
            check_header_names(headers)
        if IS_AVAILABLE and headers != []:
            headers = with_current_span(headers)
        delivery = None
        if engine.tier is not None:
            timestamp_ms = timestamp_ms or time.time_ns() // 1_000_000
            delivery = AuditedDelivery(engine, topic, engine.tier, timestamp_ms)
        try:
            engine.produce(topic, value, key, _ANY_PARTITION, delivery, None, timestamp_ms, headers)
        except Exception as error:
            if delivery is not None:
                delivery.withdrawn()
            if isinstance(error, BufferError):
                return False
            if isinstance(error, KafkaException):
                raise engine.explain(error.args[0], topic, None) from error
            raise
        return True

    @contextlib.contextmanager
    def batch(self) -> Iterator[Self]:
        """Wait at the end of the block until all messages that this thread has sent in it are stored.

            with producer.batch():
                for event in events:
                    producer.send("events", event)

        Raises the DeliveryError of the first message that failed.
        """
        me = threading.get_ident()
        outer = self._batches.get(me)
        sent = self._batches[me] = [] if outer is None else outer
        try:
            yield self
        finally:
            if outer is None:
                del self._batches[me]
        self.settle(sent)

    def settle(self, sent: Iterable[Delivery]) -> None:
        """Send these messages without lingering, and wait until they are stored. Raises the first DeliveryError."""
        engine = self._engine or self._start()
        for delivery in sent:
            while not delivery.done() and engine.flush(_BATCH_S):
                pass  # the remaining messages may be those of other threads
            delivery.result()

    @contextlib.contextmanager
    def transaction(self, *consumers: Consumer[Any]) -> Iterator[Self]:
        """Send the messages of the block in one transaction: readers see all of them or none.

            producer = Producer(transactional_id="billing-1")
            with producer.transaction():
                producer.send("invoices", invoice)
                producer.send("mails", mail)

        An exception in the block aborts the transaction. If it cannot be committed, TransactionAbortedError is raised
        after the abort, and ProducerFencedError if another producer has started with the same transactional id. If no
        broker answers for a minute, TransactionUnknownError is raised, and the next transaction first gets the result:
        it begins if this one was committed, else it raises TransactionAbortedError.

        With `consumers`, which need commit="manual", their positions are part of the transaction. So each message is
        processed exactly once: after an abort they go back to where they were when the block began.

            with Consumer("orders", group="billing", commit="manual") as consumer:
                while orders := consumer.consume():
                    with producer.transaction(consumer):
                        for order in orders:
                            producer.send("invoices", invoice_of(order))

        A producer has one transaction at a time. What other threads send meanwhile belongs to it.
        """
        if self._transactional_id is None:
            raise ConfigError("a producer needs a transactional_id for transactions")
        transaction = Transaction(self._transactional_id, consumers)
        transaction.begin(lambda: self._engine or self._start())
        try:
            yield self
        except BaseException:
            transaction.abort()
            raise
        transaction.commit()

    def flush(self, timeout_s: float | None = None) -> int:
        """Send all queued messages and wait for their results, at most `timeout_s`; return how many are left."""
        return 0 if self._engine is None else self._engine.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> int:
        """Flush and close; return the number of undelivered messages.

        Without a broker this takes up to `message.timeout.ms`, five minutes by default. The end of a `with` block that
        an exception has left, such as Ctrl-C, waits for at most 30 seconds, like the exit of a process.
        """
        self._closed = True
        self._closed_engine, self._engine = self._engine or self._closed_engine, None
        engine = self._closed_engine
        if engine is None:
            return 0
        left = engine.close(timeout_s)
        self._final_counts = engine.delivered_count, engine.failed_count
        if not left:  # otherwise freeing it may wait for a thread that is looking for a host
            self._release()
        return left

    def _release(self) -> None:
        """Free librdkafka's client, which ends its connections."""
        self._closed_engine = self._partitioner = None
        if self._stop_if_dropped is not None:
            self._stop_if_dropped.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self.close(None if failure is None else EXIT_S)

    @property
    def delivered_count(self) -> int:
        """The number of stored messages."""
        engine = self._engine or self._closed_engine
        return self._final_counts[0] if engine is None else engine.delivered_count

    @property
    def failed_count(self) -> int:
        """The number of failed messages."""
        engine = self._engine or self._closed_engine
        return self._final_counts[1] if engine is None else engine.failed_count

    @property
    def queued_count(self) -> int:
        """The number of messages without a result yet."""
        return 0 if self._engine is None else len(self._engine.client)

    def _start(self) -> Engine:
        with self._starting:
            if self._closed:
                raise SkylogError("this producer is closed; create a new one")
            if self._engine is None:
                self._connection.warn_as("messages wait in the queue")
                engine = Engine(self._connection, self._settings, self._audit)
                if self._engine is not None:  # a signal handler has sent meanwhile
                    engine.stop_when_empty()
                    return self._engine
                engine.is_awaited = self.is_awaited
                if self._choose is not None:
                    self._partitioner = CustomPartitioner(self._choose, self._connection, engine.client)
                self._stop_if_dropped = weakref.finalize(self, engine.stop_when_empty)
                self._stop_if_dropped.atexit = False
                if self._transactional_id is not None:
                    start_transactions(engine, self._transactional_id)
                self._engine = engine
            return self._engine

    def _send_blocking(self, engine: Engine, message: tuple[Any, ...], timeout_s: float) -> None:
        """Wait for room in the queue and send. Raises BufferFullError after `timeout_s`."""
        delivery: Delivery = message[4]
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline:
                engine.wait(POLL_S)
                with contextlib.suppress(BufferError):
                    engine.produce(*message)
                    return
        except BaseException as error:
            delivery.withdrawn()
            if isinstance(error, KafkaException):
                raise engine.explain(error.args[0], delivery.topic, None) from error
            raise
        delivery.withdrawn()
        raise self.buffer_full(timeout_s)

    def buffer_full(self, timeout_s: float) -> BufferFullError:
        """Return the error to raise if the queue has been full for `timeout_s`."""
        down = self._connection.down_reason
        reason = self._connection.unreachable() if down else "the cluster accepts no more"
        since = f"has been full for {timeout_s:.0f} s" if timeout_s else "is full"
        return BufferFullError(
            f"the message queue {since} ({reason}); send later, or enlarge the queue: "
            'config={"queue.buffering.max.messages": ...}'
        )

    def _after_fork(self) -> None:
        """Begin anew in the child: the parent sends what was sent before the fork."""
        self._engine = self._closed_engine = self._partitioner = None
        self._starting = threading.RLock()
        for sent in self._batches.values():
            sent.clear()


def _after_fork() -> None:
    for producer in tuple(_producers):
        producer._after_fork()


_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
