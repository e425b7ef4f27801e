"""Several message streams in one group, one for each thread of an application."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Generic, Self

from skylog.client.consumer import CommitMode, Consumer
from skylog.client.membership import Start
from skylog.client.message import Message
from skylog.client.serializers import Deserializer, ValueT
from skylog.client.tier import ConsumerTierFactory

logger = logging.getLogger(__name__)


class MessageStream(Generic[ValueT]):
    """The messages of some partitions of a topic, for one thread. Joins its group on the first iteration.

    An iteration that fails, or that you leave early, ends the stream. Its partitions go to the other streams, which get
    its unfinished message again.
    """

    def __init__(self, topic: str, join: Callable[[], Consumer[ValueT]]) -> None:
        """`join` creates the member of the group. It is called by the first iteration."""
        self.topic = topic
        self._join = join
        self._consumer: Consumer[ValueT] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[Message[ValueT]]:
        with self._lock:
            if self._closed:
                return
            self._consumer = self._join()
        try:
            with self._consumer as consumer:
                yield from consumer
        except GeneratorExit:  # the loop over the stream raised an exception or was left
            if not self._closed:
                logger.warning(
                    "a stream of '%s' has ended before it was stopped: its loop failed or was left; its partitions go "
                    "to the other streams of group '%s'. StreamRunner retries, or keeps bad messages in a topic",
                    self.topic,
                    self._consumer.group,
                )
            raise
        finally:
            self._closed = True
            self._ended.set()

    def commit(self) -> None:
        """Commit the offsets of all messages that this stream has yielded. Call it from the stream's thread."""
        if self._consumer is not None:
            self._consumer.commit()

    def stop(self) -> None:
        """End the iteration after the current message, from any thread."""
        with self._lock:
            self._closed = True
            if self._consumer is None:
                self._ended.set()
            else:
                self._consumer.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the iteration has ended and the stream has left the group."""
        return self._ended.wait(timeout_s)


class MessageStreams(Mapping[str, list[MessageStream[ValueT]]], Generic[ValueT]):
    """The streams of each topic. Leaving the `with` block stops them all."""

    def __init__(self, streams: Mapping[str, list[MessageStream[ValueT]]]) -> None:
        self._streams = streams

    def __getitem__(self, topic: str) -> list[MessageStream[ValueT]]:
        return self._streams[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def close(self, timeout_s: float = 60.0) -> None:
        """Stop all streams, and wait until each has finished its current message and left the group."""
        for stream in self._all():
            stream.stop()
        deadline = time.monotonic() + timeout_s
        waiting = [stream.topic for stream in self._all() if not stream.wait(max(deadline - time.monotonic(), 0))]
        if waiting:
            logger.warning("%d streams of %s are still being iterated", len(waiting), ", ".join(set(waiting)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self) -> list[MessageStream[ValueT]]:
        return [stream for streams in self._streams.values() for stream in streams]


def message_streams(
    topics: Mapping[str, int],
    group: str,
    bootstrap: str | None = None,
    *,
    start: Start = "earliest",
    commit: CommitMode = "auto",
    deserializer: Deserializer[ValueT] | None = None,
    audit: ConsumerTierFactory | None = None,
    config: Mapping[str, object] | None = None,
) -> MessageStreams[ValueT]:
    """Create independent streams of each topic, one per thread. Together they read every message.

        with ThreadPoolExecutor() as pool, message_streams({"page_views": 4}, group="counter") as streams:
            for stream in streams["page_views"]:
                pool.submit(count, stream)          # def count(stream): for message in stream: ...
            stop_signal.wait()

    `topics` maps each topic to its number of streams. Each stream owns some of the topic's partitions; with more
    streams than partitions, some are idle. The other parameters are those of Consumer. The `start` function is called
    in the thread that iterates.
    """

    def join(topic: str) -> Consumer[ValueT]:
        return Consumer(
            topic,
            group,
            bootstrap,
            start=start,
            commit=commit,
            deserializer=deserializer,
            audit=audit,
            config=config,
        )

    return MessageStreams(
        {topic: [MessageStream(topic, partial(join, topic)) for _ in range(count)] for topic, count in topics.items()}
    )
