"""Runs a handler for every message of some topics, in threads, with a policy for failures."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Self

from skylog.client.consumer import Consumer
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
from skylog.client.membership import Start
from skylog.client.message import Message
from skylog.client.producer import Producer
from skylog.client.serializers import Deserializer, ValueT
from skylog.client.tier import ConsumerTierFactory
from skylog.errors import SkylogError
from skylog.tracing import handling

Handler = Callable[[Message[ValueT]], object]

_WAIT_S: Final = 0.2


class StreamRunner(Generic[ValueT]):
    """Calls `handle` for every message, in a number of threads per topic. Each thread is a member of the group.

        def handle(message):
            store(message.json())

        policy = ErrorPolicy(retries=5, dead_letter_topic="orders.dead")
        StreamRunner({"orders": 4}, handle, group="billing", policy=policy).run()

    `run` returns after `stop`, which you can call from a signal handler, and raises the exception that ended the
    runner. `with runner:` runs it in the background instead. A runner runs once: create another one to go on. Delivery
    is at least once: the group moves past a message when `handle` has returned, or when it is stored in the dead-letter
    topic. While a message waits for another attempt, its partition waits too, so messages stay in order, and the member
    stays in its group.

    topics: the number of threads of each topic; with more threads than partitions, some are idle.
    policy: what to do when `handle` raises. By default it is retried three times, then the runner stops.
    start, deserializer, audit, config: as in Consumer. `start` is called in the thread that handles the messages.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        handle: Handler[ValueT],
        group: str,
        bootstrap: str | None = None,
        *,
        policy: ErrorPolicy | None = None,
        start: Start = "earliest",
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
        self._dead_letters = Producer(bootstrap, config=producer_settings(config))
        self.counts = RunnerCounts()
        self._stopping = threading.Event()
        self._has_run = False
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self) -> None:
        """Handle messages until `stop`. Raises the exception that the policy does not absorb."""
        with self:
            # Not `wait`: it holds the event's lock for a moment, in which a signal handler could not call `stop`.
            while not self._stopping.is_set():
                time.sleep(_WAIT_S)

    def stop(self) -> None:
        """End the runner after the current messages, from any thread or a signal handler."""
        self._stopping.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the runner is stopped or has failed. Return False after a timeout."""
        return self._stopping.wait(timeout_s)

    def close(self) -> None:
        """Stop, and wait until every thread has finished its message and left the group. Raises like `run`."""
        self.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()
        self._dead_letters.close()
        if threads:
            self.counts.log_end()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        if self._has_run:
            raise SkylogError(RUNS_ONCE)
        self._has_run = True
        self._threads = [
            threading.Thread(target=self._serve, args=(topic,), name=f"skylog-{topic}-{number}", daemon=True)
            for number, topic in enumerate(self._topics)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except BaseException:
            if failure is None:  # otherwise the exception of the block is the one to raise; this one was logged
                raise

    # -- in the threads

    def _serve(self, topic: str) -> None:
        try:
            with contextlib.suppress(StoppedError), self._consumer(topic) as consumer:
                while not self._stopping.is_set():
                    while (message := consumer.take()) is not None:
                        if self._attend(consumer, message):
                            self.counts.add_handled()
                        if self._stopping.is_set():
                            return
                    consumer.refill()
        except BaseException as error:  # whatever it is, the thread that called `run` must see it
            if isinstance(error, Exception):
                log_stop(error)
            with self._lock:
                self._error = self._error or error
            self.stop()

    def _consumer(self, topic: str) -> Consumer[ValueT]:
        return Consumer(topic, self._group, self._bootstrap, **self._options)

    def _attend(self, consumer: Consumer[ValueT], message: Message[ValueT]) -> bool:
        """Handle a message as the policy says; return whether it was handled. Raises what ends the runner."""
        attempt = 0
        while True:
            attempt += 1
            try:
                with handling(message):
                    self._handle(message)
                return True
            except Exception as error:
                delay_s = self._policy.delay_s(attempt, error)
                if delay_s is None:
                    self._give_up(consumer, message, error, attempt)
                    return False
                self.counts.add_retry(message, error, attempt, delay_s)
            self._pause(consumer, delay_s)
            if message.topic_partition not in consumer.assignment:
                self.counts.add_lost(message)
                return False

    def _pause(self, consumer: Consumer[ValueT], delay_s: float) -> None:
        """Wait, and stay a member of the group. Raises StoppedError if the runner is stopped meanwhile."""
        while True:
            if self._stopping.wait(min(delay_s, ALIVE_EVERY_S)):
                raise StoppedError
            consumer.keep_alive()
            delay_s -= ALIVE_EVERY_S
            if delay_s <= 0:
                return

    def _give_up(self, consumer: Consumer[ValueT], message: Message[ValueT], error: Exception, attempts: int) -> None:
        topic = self._policy.dead_letter_topic
        if topic is None:
            raise stopped_by(message, error, attempts)
        letter = dead_letter(message, error, self._group, attempts)
        with storing(message, error):
            delivery = self._dead_letters.send(topic, letter.value, letter.key, headers=letter.headers)
            while not delivery.done():
                with contextlib.suppress(TimeoutError):
                    delivery.result(ALIVE_EVERY_S)
                    break
                consumer.keep_alive()
            delivery.result()
        self.counts.add_dead(message, error, attempts, topic)
