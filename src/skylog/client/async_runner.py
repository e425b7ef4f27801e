"""Runs a coroutine function for every message of some topics, with a policy for failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic

from skylog.client.aio import AsyncConsumer, AsyncProducer, AsyncStart
from skylog.client.dead_letters import dead_letter, producer_settings
from skylog.client.error_policy import (
    ALIVE_EVERY_S,
    RUNS_ONCE,
    ErrorPolicy,
    RunnerCounts,
    StoppedError,
    log_stop,
    stopped_by,
    storing,
)
from skylog.client.message import Message
from skylog.client.serializers import Deserializer, ValueT
from skylog.client.tier import ConsumerTierFactory
from skylog.errors import SkylogError
from skylog.tracing import handling

AsyncHandler = Callable[[Message[ValueT]], Awaitable[object]]


class AsyncStreamRunner(Generic[ValueT]):
    """`StreamRunner` for asyncio: awaits `handle` for every message, in a number of tasks per topic.

        async def handle(message):
            await store(message.json())

        policy = ErrorPolicy(retries=5, dead_letter_topic="orders.dead")
        await AsyncStreamRunner({"orders": 4}, handle, group="billing", policy=policy).run()

    Takes the same arguments. Each task is a member of the group and handles its messages one after another. `run`
    returns after `stop`, and raises the exception that ended the runner. You may also cancel it: then the messages that
    are being handled are delivered again.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        handle: AsyncHandler[ValueT],
        group: str,
        bootstrap: str | None = None,
        *,
        policy: ErrorPolicy | None = None,
        start: AsyncStart = "earliest",
        deserializer: Deserializer[ValueT] | None = None,
        audit: ConsumerTierFactory | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self._topics = [topic for topic, count in topics.items() for _ in range(count)]
        self._handle = handle
        self._group = group
        self._bootstrap = bootstrap
        self._policy = ErrorPolicy() if policy is None else policy
        self._options: dict[str, Any] = {"start": start, "deserializer": deserializer, "audit": audit, "config": config}
        self._sending = producer_settings(config)
        self.counts = RunnerCounts()
        self._consumers: list[AsyncConsumer[ValueT]] = []
        self._stopping = asyncio.Event()
        self._has_run = False

    async def run(self) -> None:
        """Handle messages until `stop`. Raises the exception that the policy does not absorb."""
        if self._has_run:
            raise SkylogError(RUNS_ONCE)
        self._has_run = True
        async with AsyncProducer(self._bootstrap, config=self._sending) as dead_letters:
            tasks = [asyncio.create_task(self._serve(topic, dead_letters)) for topic in self._topics]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            except asyncio.CancelledError:
                for task in tasks:
                    task.cancel()
                raise
            finally:
                self.stop()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                self.counts.log_end()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def stop(self) -> None:
        """End the runner after the current messages. Call it on the event loop, for example in a signal handler."""
        self._stopping.set()
        for consumer in self._consumers:
            consumer.stop()

    async def _serve(self, topic: str, dead_letters: AsyncProducer) -> None:
        if self._stopping.is_set():
            return
        try:
            async with AsyncConsumer(topic, self._group, self._bootstrap, **self._options) as consumer:
                self._consumers.append(consumer)
                async for message in consumer:
                    if await self._attend(consumer, message, dead_letters):
                        self.counts.add_handled()
        except StoppedError:
            pass
        except Exception as error:
            log_stop(error)
            raise

    async def _attend(
        self, consumer: AsyncConsumer[ValueT], message: Message[ValueT], dead_letters: AsyncProducer
    ) -> bool:
        """Handle a message as the policy says; return whether it was handled. Raises what ends the runner."""
        attempt = 0
        while True:
            attempt += 1
            try:
                with handling(message):
                    await self._handle(message)
                return True
            except Exception as error:
                delay_s = self._policy.delay_s(attempt, error)
                if delay_s is None:
                    await self._give_up(consumer, message, error, attempt, dead_letters)
                    return False
                self.counts.add_retry(message, error, attempt, delay_s)
            await self._pause(consumer, delay_s)
            if message.topic_partition not in consumer.assignment:
                self.counts.add_lost(message)
                return False

    async def _pause(self, consumer: AsyncConsumer[ValueT], delay_s: float) -> None:
        """Wait, and stay a member of the group. Raises StoppedError if the runner is stopped meanwhile."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(delay_s, ALIVE_EVERY_S))
                raise StoppedError
            await consumer.keep_alive()
            delay_s -= ALIVE_EVERY_S
            if delay_s <= 0:
                return

    async def _give_up(
        self,
        consumer: AsyncConsumer[ValueT],
        message: Message[ValueT],
        error: Exception,
        attempts: int,
        dead_letters: AsyncProducer,
    ) -> None:
        topic = self._policy.dead_letter_topic
        if topic is None:
            raise stopped_by(message, error, attempts)
        letter = dead_letter(message, error, self._group, attempts)
        with storing(message, error):
            sending = asyncio.ensure_future(dead_letters.send(topic, letter.value, letter.key, headers=letter.headers))
            while not (await asyncio.wait({sending}, timeout=ALIVE_EVERY_S))[0]:
                await consumer.keep_alive()
            await sending
        self.counts.add_dead(message, error, attempts, topic)
