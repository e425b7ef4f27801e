"""Single requests over a blocking socket, to prepare a measurement: creates a topic, reads a log once."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from dataclasses import dataclass

from benchmarks import frames


@dataclass(frozen=True)
class LogRead:
    """One pass through a log: the requested offsets and the received records, all of the same length."""

    offsets: list[int]
    records: list[bytes]

    @property
    def records_bytes(self) -> int:
        return len(self.records[0])


class Channel:
    """A connection to send requests and receive their responses."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.sock = socket.create_connection(address, timeout=30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.sock.makefile("rb")

    def ask(self, request: bytes) -> bytes:
        """Send a request, and return its response."""
        self.send(request)
        return self.receive()

    def send(self, request: bytes) -> None:
        self.sock.sendall(request)

    def receive(self) -> bytes:
        """Return the next response with its length prefix, so that positions are those of `frames`."""
        prefix = self.reader.read(4)
        if len(prefix) < 4:
            raise ConnectionError("the server closed the connection")
        return prefix + self.reader.read(struct.unpack(">i", prefix)[0])

    def close(self) -> None:
        self.reader.close()
        self.sock.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def expect_no_error(answer: bytes, error_at: int) -> None:
    (code,) = struct.unpack_from(">h", answer, error_at)
    if code:
        raise RuntimeError(f"the broker answered with error code {code}: {answer[:120]!r}")


def create_topic(address: tuple[str, int], topic: str, partitions: int = 1) -> None:
    with Channel(address) as channel:
        answer = channel.ask(frames.create_topic_request(topic, partitions))
    expect_no_error(answer, frames.create_topic_error_at(topic))


def produce(channel: Channel, topic: str, records: bytes) -> None:
    answer = channel.ask(frames.produce_request(topic, records).data)
    expect_no_error(answer, frames.produce_error_at(topic))


def read_log(address: tuple[str, int], topic: str, max_bytes: int, max_answers: int) -> LogRead:
    """Fetch the log from its start, each time from the end of the last response, as a consumer does.

    Responses of an unusual length, such as the last one of the log, are omitted: the generator counts responses by
    their length. If they are more than a tenth, the workload would differ, and this raises an error.
    """
    offsets: list[int] = []
    records: list[bytes] = []
    offset = 0
    with Channel(address) as channel:
        while len(offsets) < max_answers:
            frame = frames.fetch_request(topic, offset, partition_max_bytes=max_bytes, max_wait_ms=0)
            answer = channel.ask(frame.data)
            expect_no_error(answer, frames.fetch_error_at(topic))
            found = frames.fetch_response_records(topic, answer)
            if not found:
                break
            offsets.append(offset)
            records.append(found)
            offset = frames.records_end_offset(found)
    usual = Counter(map(len, records)).most_common(1)[0][0]
    kept = [(o, r) for o, r in zip(offsets, records, strict=True) if len(r) == usual]
    if len(kept) < 0.9 * len(offsets) - 1:
        raise RuntimeError(f"only {len(kept)} of {len(offsets)} answers have the usual {usual} bytes")
    return LogRead([o for o, _ in kept], [r for _, r in kept])
