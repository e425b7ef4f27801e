"""Producer and Consumer for asyncio: the same clients with the same options, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, Literal, Self, TypeVar
from weakref import WeakKeyDictionary

from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import Message as LibraryMessage

from skylog.client.consumer import CommitMode, Consumer
from skylog.client.delivery import Delivery, Position
from skylog.client.engine import EXIT_S
from skylog.client.errors import BufferFullError
from skylog.client.message import Message
from skylog.client.partitioners import Partitioner
from skylog.client.producer import MAX_BLOCK_S, Acks, Producer
from skylog.client.serializers import Deserializer, Serializer, ValueT, serialize
from skylog.client.tier import ConsumerTierFactory, ProducerTierFactory
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.tracing import HeaderPairs

logger = logging.getLogger(__name__)

T = TypeVar("T")

_Outgoing = tuple[str, object, object, int | None, HeaderPairs | None, int]
"""The arguments of `send`: topic, value, key, partition, headers, timestamp_ms."""

AsyncStart = Literal["earliest", "latest"] | Callable[[TopicPartition], int | Awaitable[int | None] | None]

_FULL_S: Final = 0.01
_CHECK_S: Final = 0.5
_AT_ONCE: Final = {"linger.ms": 0}


class AsyncProducer:
    """`Producer` for asyncio; takes the same arguments.

        async with AsyncProducer() as producer:
            position = await producer.send("page_views", {"page": "/"})
            await asyncio.gather(*[producer.send("page_views", {"page": page}) for page in pages])

    Awaiting `send` waits until the message is stored. A message is sent at once if no other is in flight; messages that
    are sent while others are in flight are batched. (`config={"linger.ms": 5}` makes each message wait for others.)
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
        self._producer = Producer(
            bootstrap,
            acks=acks,
            compression=compression,
            partitioner=partitioner,
            serializer=serializer,
            key_serializer=key_serializer,
            transactional_id=transactional_id,
            audit=audit,
            config={**_AT_ONCE, **(config or {})},
        )
        self._producer.is_awaited = True
        self._producer.delivery_kind = _AwaitedDelivery
        self._may_block = callable(partitioner)  # sometimes waits for the broker
        self._mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = WeakKeyDictionary()
        self._last_mailbox: _Mailbox | None = None

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        headers: HeaderPairs | None = None,
        timestamp_ms: int = 0,
        wait: bool = True,
    ) -> Position:
        """Send a message and return its position in the log. Raises what Producer.send and Delivery.result raise.

        If the queue is full, `send` waits for up to a minute, then raises BufferFullError; immediately with
        `wait=False`.
        """
        mailbox = self._mailbox()
        message = topic, value, key, partition, headers, timestamp_ms
        delivery = self._queue_now(mailbox, message, wait) or await self._queue(mailbox, message, wait)
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        if isinstance(delivery, _AwaitedDelivery):
            delivery.post_to(mailbox, future)
        else:
            delivery.add_done_callback(partial(mailbox.post, future))
        return await future

    def offer(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: HeaderPairs | None = None,
    ) -> bool:
        """Queue a message and return True, or return False if the queue is full. Never waits; see `Producer.offer`."""
        return self._producer.offer(topic, value, key, timestamp_ms, headers)

    @contextlib.asynccontextmanager
    async def batch(self) -> AsyncIterator[AsyncBatch]:
        """Wait at the end of the block until all messages that were sent with the batch are stored.

            async with producer.batch() as batch:
                for event in events:
                    await batch.send("events", event)

        `batch.send` waits only for room in the queue. Raises the DeliveryError of the first message that failed.
        """
        batch = AsyncBatch(self)
        yield batch
        await asyncio.to_thread(self._producer.settle, batch.sent)

    def _queue_now(self, mailbox: _Mailbox, message: _Outgoing, wait: bool) -> Delivery | None:
        """Queue a message, or return None if it has to wait. Raises BufferFullError if it must not `wait`."""
        if self._may_block:
            return None
        if mailbox.waiting:
            if not wait:
                raise self._producer.buffer_full(0)
            return None
        try:
            return self._send(message)
        except BufferFullError:
            if not wait:
                raise
            return None

    async def _queue(self, mailbox: _Mailbox, message: _Outgoing, wait: bool) -> Delivery:
        """Queue a message after those of earlier calls, and wait for room in the queue meanwhile."""
        deadline = monotonic() + MAX_BLOCK_S
        mailbox.waiting += 1
        try:
            async with mailbox.order:
                while True:
                    try:
                        if self._may_block:
                            return await asyncio.to_thread(self._send, message)
                        return self._send(message)
                    except BufferFullError:
                        if not wait:
                            raise
                        if monotonic() >= deadline:
                            raise self._producer.buffer_full(MAX_BLOCK_S) from None
                    await asyncio.sleep(_FULL_S)
        finally:
            mailbox.waiting -= 1

    def _send(self, message: _Outgoing) -> Delivery:
        topic, value, key, partition, headers, timestamp_ms = message
        return self._producer.send(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms, wait=False
        )

    def _mailbox(self) -> _Mailbox:
        loop = asyncio.get_running_loop()
        mailbox = self._last_mailbox
        if mailbox is None or mailbox.loop() is not loop:
            mailbox = self._mailboxes.get(loop)
            if mailbox is None:
                mailbox = self._mailboxes[loop] = _Mailbox(loop)
            self._last_mailbox = mailbox
        return mailbox

    @contextlib.asynccontextmanager
    async def transaction(self, *consumers: AsyncConsumer[Any]) -> AsyncIterator[Self]:
        """Send the messages of the block in one transaction; see `Producer.transaction`."""
        block = self._producer.transaction(*(each._consumer for each in consumers))
        beginning = asyncio.ensure_future(asyncio.to_thread(block.__enter__))
        try:
            await _finish(beginning)
        except asyncio.CancelledError as error:
            if beginning.exception() is None:  # it has begun, so it must be ended
                await _finish(asyncio.to_thread(block.__exit__, type(error), error, None))
            raise
        try:
            yield self
        except BaseException as error:
            await _finish(asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__))
            raise
        await _finish(asyncio.to_thread(block.__exit__, None, None, None))

    async def flush(self, timeout_s: float | None = None) -> int:
        """Send all queued messages and wait for their results, at most `timeout_s`; return how many are left."""
        return await asyncio.to_thread(self._producer.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> int:
        """Flush and close; return the number of undelivered messages. See `Producer.close`."""
        return await asyncio.to_thread(self._producer.close, timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failure: type[BaseException] | None, *_: object) -> None:
        await self.close(None if failure is None else EXIT_S)


async def _finish(work: Awaitable[T]) -> T:
    """Wait for a call in a thread to its end, also if the task is cancelled: a transaction has one call at a time."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.warning("a transaction of a cancelled task failed: %s", error)
        raise


class AsyncBatch:
    """Messages of a block, which ends when all of them are stored. `AsyncProducer.batch` creates it."""

    def __init__(self, producer: AsyncProducer) -> None:
        self.sent: list[Delivery] = []
        self._producer = producer

    async def send(
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
        """Queue a message and return its Delivery. Waits only for room in the queue; see `AsyncProducer.send`."""
        producer = self._producer
        mailbox = producer._mailbox()
        message = topic, value, key, partition, headers, timestamp_ms
        delivery = producer._queue_now(mailbox, message, wait) or await producer._queue(mailbox, message, wait)
        self.sent.append(delivery)
        return delivery


class _Mailbox:
    """Passes deliveries from the producer's thread to one event loop, with one call for all that arrive together.

    A delivery may be posted twice: the second time changes nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.order = asyncio.Lock()  # of the messages that wait for room in the queue
        self.waiting = 0  # how many do: between two of them, the lock is free
        self.loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._posted: list[tuple[asyncio.Future[Position], Delivery]] = []

    def post(self, future: asyncio.Future[Position], delivery: Delivery) -> None:
        with self._lock:
            self._posted.append((future, delivery))
            if len(self._posted) > 1:
                return  # a call into the loop is already scheduled
        loop = self.loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:  # the loop is closed: no task waits there any more
            with self._lock:
                self._posted.clear()

    def _resolve(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, []
        for future, delivery in posted:
            if future.done():
                continue
            failure = delivery.exception()
            if failure is None:
                future.set_result(delivery.result())
            else:
                future.set_exception(failure)


class _AwaitedDelivery(Delivery):
    """The outcome of a message that an event loop awaits.

    Takes no lock, like `Delivery`: the producer's thread sets the outcome and then looks for the mailbox, while the
    event loop sets the mailbox and then looks for the outcome. So at least one of them posts it.
    """

    _future: asyncio.Future[Position]
    _mailbox: _Mailbox | None = None

    def __call__(self, error: LibraryError | None, message: LibraryMessage) -> None:
        Delivery.__call__(self, error, message)
        if self._mailbox is not None:
            self._mailbox.post(self._future, self)

    def post_to(self, mailbox: _Mailbox, future: asyncio.Future[Position]) -> None:
        self._future = future
        self._mailbox = mailbox
        if self.done():
            mailbox.post(future, self)


class AsyncConsumer(Generic[ValueT]):
    """`Consumer` for asyncio; takes the same arguments.

        async with AsyncConsumer("page_views", group="counter") as consumer:
            async for message in consumer:
                await count(message.json())

    Every call that may block runs in one dedicated thread. A `start` function is called on the event loop, like the
    code that processes the messages, and may be a coroutine function.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        group: str,
        bootstrap: str | None = None,
        *,
        start: AsyncStart = "earliest",
        commit: CommitMode = "auto",
        deserializer: Deserializer[ValueT] | None = None,
        audit: ConsumerTierFactory | None = None,
        read_committed: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that waits for the thread
        self._consumer = Consumer(
            topics,
            group,
            bootstrap,
            start=partial(self._call_on_loop, start) if callable(start) else start,
            commit=commit,
            deserializer=deserializer,
            audit=audit,
            read_committed=read_committed,
            config=config,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="skylog-consumer")
        self._running: asyncio.Future[Any] | None = None  # the last call in the thread

    async def __aiter__(self) -> AsyncIterator[Message[ValueT]]:
        consumer = self._consumer
        if self._running is not None and not self._running.done():  # a cancelled call goes on in the thread
            await asyncio.wait([self._running])
        while not consumer.is_stopped:
            while (message := consumer.take()) is not None:
                yield message
            await self._run(consumer.refill)

    async def consume(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message[ValueT]]:
        """Return the next available messages; an empty list if none arrives within `timeout_s`."""
        # They are taken here and not in the thread: a caller that is cancelled meanwhile would lose them.
        await self._run(self._consumer.wait_for_messages, max_messages, timeout_s)
        return self._consumer.take_many(max_messages)

    async def keep_alive(self) -> None:
        """Stay a member of the group while a message takes long; see `Consumer.keep_alive`."""
        await self._run(self._consumer.keep_alive)

    async def commit(self) -> None:
        """Commit the offsets of all messages returned so far, including the last one. Raises SkylogError."""
        await self._run(self._consumer.commit)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at an offset of a partition that is assigned to this member."""
        await self._run(self._consumer.seek, topic, partition, offset)

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Continue at the first message at or after a time, or at the end, in every partition of this member."""
        await self._run(self._consumer.seek_to_time, timestamp_ms)

    async def rewind(self) -> None:
        """Continue at the oldest message of every partition that is assigned to this member."""
        await self._run(self._consumer.rewind)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned to this member."""
        return self._consumer.assignment

    def stop(self) -> None:
        """End the iteration."""
        self._consumer.stop()

    async def close(self) -> None:
        """Commit all messages returned so far, unless commits are manual, and leave the group."""
        await self._run(self._consumer.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, failure: type[BaseException] | None, *_: object) -> None:
        await self._run(self._consumer.__exit__, failure)
        self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        """Run a call to completion even if the caller is cancelled: a consumer allows one call at a time."""
        if (
            self._consumer.is_inherited
        ):  # the child of a fork does not have the thread; the call raises, or does nothing
            return function(*args)
        self._loop = asyncio.get_running_loop()
        running = self._running = self._loop.run_in_executor(self._thread, partial(function, *args))
        return await asyncio.shield(running)

    def _call_on_loop(
        self, function: Callable[[TopicPartition], int | Awaitable[int | None] | None], partition: TopicPartition
    ) -> int | None:
        """Call the `start` function from the consumer's thread. Raises SkylogError if the loop ends before it does."""

        async def call() -> int | None:
            found = function(partition)
            return await found if isinstance(found, Awaitable) else found

        assert self._loop is not None
        if self._loop.is_running():
            called = asyncio.run_coroutine_threadsafe(call(), self._loop)
            while self._loop.is_running() and not called.done():
                wait([called], _CHECK_S)
            if called.done():
                return called.result()
        raise SkylogError("the event loop has ended before the start offset was known")
