"""Several streams of messages over one group, one for each thread of an application."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

from skylog.client.consumer import Consumer
from skylog.client.message import Message

logger = logging.getLogger(__name__)


class MessageStream:
    """The messages of some partitions of a topic, for one thread. Joins its group when it is first iterated.

    An iteration that fails, or is left early, ends the stream: its partitions go to the others, and what it had in hand
    comes again there.
    """

    def __init__(self, topic: str, group: str, bootstrap: str | None, options: Mapping[str, Any]) -> None:
        self.topic = topic
        self._arguments = (topic, group, bootstrap)
        self._options = options
        self._consumer: Consumer | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[Message]:
        with self._lock:
            if self._closed:
                return
            self._consumer = Consumer(*self._arguments, **self._options)
        try:
            with self._consumer as consumer:
                yield from consumer
        finally:
            self._closed = True
            self._ended.set()

    def commit(self) -> None:
        """Move the group past the messages that this stream has given. Call it from the stream's own thread."""
        if self._consumer is not None:
            self._consumer.commit()

    def stop(self) -> None:
        """Let the iteration end after the message that it is at, from any thread."""
        with self._lock:
            self._closed = True
            if self._consumer is None:
                self._ended.set()
            else:
                self._consumer.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the iteration has ended and the group has been left."""
        return self._ended.wait(timeout_s)


class MessageStreams(Mapping[str, list[MessageStream]]):
    """The streams of each topic. Leaving the `with` block stops them all."""

    def __init__(self, streams: Mapping[str, list[MessageStream]]) -> None:
        self._streams = streams

    def __getitem__(self, topic: str) -> list[MessageStream]:
        return self._streams[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def close(self, timeout_s: float = 60.0) -> None:
        """Stop every stream, and wait until each has left the group: when its thread is done with a message."""
        for stream in self._all():
            stream.stop()
        deadline = time.monotonic() + timeout_s
        waiting = [stream.topic for stream in self._all() if not stream.wait(max(deadline - time.monotonic(), 0))]
        if waiting:
            logger.warning("%d streams of %s are still held by somebody", len(waiting), ", ".join(set(waiting)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self) -> list[MessageStream]:
        return [stream for streams in self._streams.values() for stream in streams]


def message_streams(
    topics: Mapping[str, int], group: str, bootstrap: str | None = None, **options: Any
) -> MessageStreams:
    """So many independent streams of each topic, for as many threads; together they read every message.

        with ThreadPoolExecutor() as pool, message_streams({"page_views": 4}, group="counter") as streams:
            for stream in streams["page_views"]:
                pool.submit(count, stream)          # def count(stream): for message in stream: ...
            stop_signal.wait()

    Each stream owns some of the topic's partitions at a time; more streams than partitions leave some idle. `options`
    are those of Consumer: start, commit, deserializer, audit, config.
    """
    return MessageStreams(
        {
            topic: [MessageStream(topic, group, bootstrap, options) for _ in range(count)]
            for topic, count in topics.items()
        }
    )
