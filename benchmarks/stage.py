"""A broker for an attack: creates topics and messages, sends any request in any version, reads the broker's pauses."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.console import console_url
from benchmarks.servers import Server, broker
from skylog.protocol.apis import API_SPECS
from skylog.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from skylog.protocol.frames import request_frame
from skylog.protocol.headers import RequestHeader, read_response_header
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.protocol.schema import Message

PATIENCE_S = 180.0
IN_FLIGHT = 64
_numbers = itertools.count(1)


def frame_of(request: Message, version: int) -> bytes:
    header = RequestHeader(request.api_key, version, next(_numbers) & 0x7FFFFFFF, "attacker")
    return bytes(request_frame(header, request))


def produce_to(topic: str, batches: Sequence[bytes], *, first: int = 0) -> ProduceRequest:
    """Build a request with one batch per partition, from partition `first` on."""
    rows = [PartitionProduceData(index=first + number, records=batch) for number, batch in enumerate(batches)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)])


class Line:
    """A connection that sends whole frames and reads whole responses, or drops them."""

    def __init__(self, address: tuple[str, int], receive_buffer_bytes: int = 0) -> None:
        self.sock = socket.socket()
        if receive_buffer_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.sock.settimeout(PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect(address)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, request: Message, version: int) -> Any:
        self.sock.sendall(frame_of(request, version))
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        spec = API_SPECS[request.api_key]
        _, position = read_response_header(answer, spec.response_header_version(version))
        return spec.response.read(answer, version, position)[0]

    def throw(self, frame: bytes) -> int:
        """Send a frame and drop its response. Return the response's length."""
        self.sock.sendall(frame)
        return self.drop_answer()

    def throw_all(self, frames: Iterable[bytes]) -> int:
        """Send many frames, `IN_FLIGHT` at a time, and drop their responses. Return their number."""
        left, count = iter(frames), 0
        while chunk := list(itertools.islice(left, IN_FLIGHT)):
            self.sock.sendall(b"".join(chunk))
            for _ in chunk:
                self.drop_answer()
            count += len(chunk)
        return count

    def drop_answer(self, pause: Any = None) -> int:
        """Read and drop a response, calling `pause` between pieces. Return its length."""
        length = left = struct.unpack(">i", self._read(4))[0]
        piece = bytearray(65536)
        while left:
            received = self.sock.recv_into(piece, min(left, len(piece)))
            if not received:
                raise ConnectionError("the broker closed the connection")
            left -= received
            if pause is not None:
                pause()
        return int(length)

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            more = self.sock.recv(min(length - len(data), 1 << 20))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)


class Stage:
    """A broker that can be stopped and started on the same data, with its console for `/metrics`."""

    def __init__(self, data_dir: Path, quick: bool) -> None:
        self.data_dir = data_dir
        self.quick = quick
        self.settings: dict[str, str] = {}
        self._server: Server | None = None

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def server(self) -> Server:
        if self._server is None:
            settings = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
            self._server = broker(self.data_dir, "--console", "--console-port", "0", *settings, core=None)
        return self._server

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def restart(self) -> None:
        self.stop()
        assert self.server

    def line(self, receive_buffer_bytes: int = 0) -> Line:
        return Line(self.server.address, receive_buffer_bytes)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic. Names of configs have underscores in place of dots."""
        rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
        with self.line() as line:
            (result,) = line.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        if result.error_code:
            raise RuntimeError(f"{name}: error {result.error_code}: {result.error_message}")

    def fill(self, topic: str, batch: bytes, count: int) -> None:
        """Produce the same batch `count` times."""
        frame = frame_of(produce_to(topic, [batch]), 9)
        with self.line() as line:
            line.throw_all(itertools.repeat(frame, count))

    def log_file(self, topic: str, suffix: str = ".log") -> Path:
        """Return the largest file of that kind in partition 0."""
        return max((self.data_dir / f"{topic}-0").glob(f"*{suffix}"), key=lambda path: path.stat().st_size)

    def longest_pause_ms(self) -> float | None:
        """Return the longest pause of the event loop that the broker reports; None if it does not measure pauses."""
        with urllib.request.urlopen(console_url(self.server) + "/metrics", timeout=PATIENCE_S) as response:
            text = response.read().decode()
        found = re.search(r"^skylog_event_loop_longest_pause_seconds(?:\{[^}]*\})? (\S+)", text, re.MULTILINE)
        return float(found[1]) * 1000 if found else None

    def log_lines(self) -> int:
        self.server.log.seek(0)
        return self.server.log.read().count("\n")
