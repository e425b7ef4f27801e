"""Producer and Consumer for asyncio. The same clients, with the same options; nothing here blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self, TypeVar
from weakref import WeakKeyDictionary

from skylog.client.consumer import Consumer
from skylog.client.delivery import Delivery, Position
from skylog.client.errors import BufferFullError
from skylog.client.message import Message
from skylog.client.producer import Producer

T = TypeVar("T")

_FULL_S: Final = 0.01


class AsyncProducer:
    """`Producer` for asyncio; takes the same arguments.

        async with AsyncProducer() as producer:
            position = await producer.send("page_views", {"page": "/"})
            await asyncio.gather(*[producer.send("page_views", {"page": page}) for page in pages])

    Awaiting `send` waits until the message is stored; messages that are sent at the same time travel together.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._producer = Producer(*args, **options)
        self._may_ask = callable(options.get("partitioner"))  # which waits for the broker, now and then
        self._mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = WeakKeyDictionary()

    async def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> Position:
        """Send a message; where it is stored. Raises what Producer.send and Delivery.result do."""
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop)
        if mailbox is None:
            mailbox = self._mailboxes[loop] = _Mailbox(loop)
        send = partial(self._producer.send, topic, value, key, wait=False, **options)
        async with mailbox.order:  # so that no message overtakes another while the queue is full
            while True:
                try:
                    delivery = await asyncio.to_thread(send) if self._may_ask else send()
                    break
                except BufferFullError:
                    await asyncio.sleep(_FULL_S)
        future: asyncio.Future[Position] = loop.create_future()
        delivery.add_done_callback(partial(mailbox.post, future))
        return await future

    async def flush(self) -> None:
        """Wait until everything that was sent is settled."""
        await asyncio.to_thread(self._producer.flush)

    async def close(self) -> None:
        await asyncio.to_thread(self._producer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Mailbox:
    """Deliveries on their way from the producer's thread to one event loop: one call for all that come together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.order = asyncio.Lock()
        self._loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._posted: list[tuple[asyncio.Future[Position], Delivery]] = []

    def post(self, future: asyncio.Future[Position], delivery: Delivery) -> None:
        with self._lock:
            self._posted.append((future, delivery))
            if len(self._posted) > 1:
                return  # the loop has been called, and has not come yet
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._open)
        except RuntimeError:  # the loop is closed: nobody waits there any more
            with self._lock:
                self._posted.clear()

    def _open(self) -> None:
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


class AsyncConsumer:
    """`Consumer` for asyncio; takes the same arguments.

        async with AsyncConsumer("page_views", group="counter") as consumer:
            async for message in consumer:
                await count(message.json())

    All that may wait runs in one thread of its own.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._consumer = Consumer(*args, **options)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="skylog-consumer")

    async def __aiter__(self) -> AsyncIterator[Message]:
        consumer = self._consumer
        while not consumer.is_stopped:
            while (message := consumer.take()) is not None:
                yield message
            await self._run(consumer.refill)

    async def consume(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message]:
        return await self._run(self._consumer.consume, max_messages, timeout_s)

    async def commit(self) -> None:
        await self._run(self._consumer.commit)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        await self._run(self._consumer.seek, topic, partition, offset)

    async def seek_to_time(self, timestamp_ms: int) -> None:
        await self._run(self._consumer.seek_to_time, timestamp_ms)

    async def rewind(self) -> None:
        await self._run(self._consumer.rewind)

    def stop(self) -> None:
        """End the iteration."""
        self._consumer.stop()

    async def close(self) -> None:
        await self._run(self._consumer.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._run(self._consumer.__exit__, *failure)
        self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        """Run it to its end, even if the caller is cancelled meanwhile: a consumer is no place for two at a time."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args))
        return await asyncio.shield(running)
