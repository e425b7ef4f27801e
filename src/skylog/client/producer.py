"""Sending messages."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, Self

from confluent_kafka import KafkaException

from skylog.client.connection import Connection
from skylog.client.delivery import AuditedDelivery, Delivery
from skylog.client.engine import LISTEN_EVERY, POLL_S, Engine
from skylog.client.errors import BrokerUnreachableError, BufferFullError
from skylog.client.partitioners import OwnPartitioner, Partitioner, library_name
from skylog.client.serializers import Serializer, serialize
from skylog.client.tier import ProducerAudit
from skylog.errors import ConfigError, SkylogError

Acks = Literal["all", 0, 1]
HeaderPairs = list[tuple[str, str | bytes | None]] | dict[str, str | bytes | None]

MAX_BLOCK_S: Final = 60.0
_ANY_PARTITION: Final = -1
_BATCH_S: Final = 0.2
_new: Final = object.__new__


class Producer:
    """Sends messages to a cluster: asynchronously, in batches, each stored once and in order.

        producer = Producer()
        producer.send("page_views", {"page": "/", "user": 7}, key="7")
        producer.flush()

    `send` hands a message over and returns at once; what came of it is in the `Delivery` it returns. Failures that
    nobody asks for are logged and counted. Sends from any thread; starts with the first message, anew in the child of a
    fork; what is left when the process ends is sent then.

    bootstrap: a broker of the cluster, or several: "a:9092,b:9092"; without it SKYLOG_BOOTSTRAP of the environment,
        or 127.0.0.1:9092.
    acks: "all" waits for every replica in sync and makes retries harmless (idempotence); 1: the leader; 0: nobody.
    compression: none, gzip, snappy, lz4 or zstd.
    partitioner: murmur2 (as Java's clients), keyed, random, or a function; see `skylog.client.partitioners`.
    serializer, key_serializer: functions that make bytes; see `skylog.client.serializers`.
    audit: counts what was acknowledged; see `skylog.audit.ProducerAudit`.
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
        audit: ProducerAudit | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if acks not in ("all", 0, 1):
            raise ConfigError(f"acks={acks!r}: expected 'all', 1 or 0")
        self._choose = partitioner if callable(partitioner) else None
        self._settings: dict[str, Any] = {
            "acks": acks,
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "partitioner": library_name(partitioner) if isinstance(partitioner, str) else "random",
            "topic.metadata.propagation.max.ms": 10_000,
            **(config or {}),
        }
        self._connection = Connection(bootstrap, config)
        self._serializer = None if serializer is serialize else serializer
        self._key_serializer = key_serializer
        self._audit = audit
        self._starting = threading.Lock()
        self._engine: Engine | None = None
        self._spent: Engine | None = None  # closed, and asked only for its counts
        self._partitioner: OwnPartitioner | None = None
        self._closed = False
        self._batches: dict[int, list[Delivery]] = {}  # those that are open, by their threads
        _producers.add(self)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeaderPairs | None = None,
        timestamp_ms: int = 0,
        wait: bool = True,
    ) -> Delivery:
        """Hand a message over. Raises SkylogError for what can never be sent.

        Without a value it is a tombstone. Without `timestamp_ms` it carries the time of now. While the queue is full it
        waits; BufferFullError after a minute of that, or at once if it is not to `wait`.
        """
        engine = self._engine or self._start()
        if value is not None and (type(value) is not bytes or self._serializer is not None):
            value = (self._serializer or serialize)(value)
        if partition is None:
            partition = _ANY_PARTITION if self._partitioner is None else self._partitioner.partition(topic, key)
        if key is not None:
            key = self._key_serializer(key)
        if engine.tier is None:
            delivery = _new(Delivery)  # without the call of __init__, which costs more than the object
            delivery._state = engine
            delivery.topic = topic
        else:
            timestamp_ms = timestamp_ms or time.time_ns() // 1_000_000
            delivery = AuditedDelivery(engine, topic, engine.tier, timestamp_ms)
        try:
            engine.produce(topic, value, key, partition, delivery, None, timestamp_ms, headers)
        except BufferError:
            message = (topic, value, key, partition, delivery, None, timestamp_ms, headers)
            self._send_later(engine, message, MAX_BLOCK_S if wait else 0)
        except KafkaException as error:
            delivery.withdrawn()
            raise engine.explain(error.args[0], topic, None) from error
        except Exception:
            delivery.withdrawn()
            raise
        engine.sent_count += 1
        if not engine.sent_count % LISTEN_EVERY:
            engine.listen()
        if self._batches and (batch := self._batches.get(threading.get_ident())) is not None:
            batch.append(delivery)
        return delivery

    def offer(self, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0) -> bool:
        """Hand a message over if the queue has room for it. Never waits; what came of it is counted and logged.

        Raises DeliveryError for what can never be sent, such as a message that is too large.
        """
        engine = self._engine or self._start()
        if self._partitioner is not None:
            raise ConfigError("a partitioner of one's own may have to wait for the broker: `send`, do not `offer`")
        delivery = None
        if engine.tier is not None:
            timestamp_ms = timestamp_ms or time.time_ns() // 1_000_000
            delivery = AuditedDelivery(engine, topic, engine.tier, timestamp_ms)
        try:
            engine.produce(topic, value, key, _ANY_PARTITION, delivery, None, timestamp_ms)
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
        """Wait, at the end of the block, until everything that this thread has sent in it is stored.

            with producer.batch():
                for event in events:
                    producer.send("events", event)

        Raises the DeliveryError of the first message that was not stored.
        """
        me = threading.get_ident()
        outer = self._batches.get(me)
        sent = self._batches[me] = [] if outer is None else outer
        try:
            yield self
        finally:
            if outer is None:
                del self._batches[me]
        engine = self._engine or self._start()
        for delivery in sent:
            while not delivery.done() and engine.flush(_BATCH_S):
                pass  # what is left may be what other threads are sending
            delivery.result()

    def flush(self, timeout_s: float | None = None) -> int:
        """Send what is queued and wait until all of it is settled, or for so long; how many messages are left."""
        return 0 if self._engine is None else self._engine.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> int:
        """Flush and end; how many messages have been given up.

        Without a broker that takes as long as messages may wait for one: `message.timeout.ms`, five minutes by default.
        """
        self._closed = True
        self._spent, self._engine = self._engine or self._spent, None
        return 0 if self._spent is None else self._spent.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def delivered_count(self) -> int:
        """How many messages have been stored."""
        engine = self._engine or self._spent
        return 0 if engine is None else engine.delivered_count

    @property
    def failed_count(self) -> int:
        """How many messages have been given up."""
        engine = self._engine or self._spent
        return 0 if engine is None else engine.failed_count

    @property
    def queued_count(self) -> int:
        """How many messages are on their way."""
        return 0 if self._engine is None else len(self._engine.client)

    def _start(self) -> Engine:
        with self._starting:
            if self._closed:
                raise SkylogError("this producer is closed; make a new one")
            if self._engine is None:
                engine = Engine(self._connection, self._settings, self._audit)
                if self._choose is not None:
                    self._partitioner = OwnPartitioner(self._choose, self._connection, engine.client)
                weakref.finalize(self, engine.abandon).atexit = False
                self._engine = engine
            return self._engine

    def _send_later(self, engine: Engine, message: tuple[Any, ...], patience_s: float) -> None:
        """Send when the queue has room again."""
        delivery: Delivery = message[4]
        deadline = time.monotonic() + patience_s
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
        down = self._connection.down_reason
        reason = BrokerUnreachableError(self._connection.bootstrap, down) if down else "the cluster takes no more"
        raise BufferFullError(
            f"the queue of messages has been full for {patience_s:.0f} s ({reason}); send later, or give it more room: "
            'config={"queue.buffering.max.messages": ...}'
        )

    def _after_fork(self) -> None:
        if self._engine is not None:
            self._engine.forsake()
        self._engine = self._spent = self._partitioner = None
        self._starting = threading.Lock()


def _after_fork() -> None:
    for producer in tuple(_producers):
        producer._after_fork()


_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
