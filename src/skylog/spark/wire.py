"""One blocking connection to a broker: requests out, responses in, in order.

Executors need unparsed record batches, which no client library provides. This module writes request headers itself,
because `skylog.protocol.headers` imports every API, which takes a new executor longer than a short task.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from struct import Struct
from typing import Final, TypeVar

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from skylog.protocol.fields import Versions
from skylog.protocol.primitives import nullable_string, read_uvarint, skip_tagged_fields
from skylog.protocol.schema import Message
from skylog.spark.errors import OptionError
from skylog.spark.security import PLAINTEXT, Security

CLIENT_ID: Final = "skylog-spark"
_SIZE: Final = Struct(">i")
_HEADER: Final = Struct(">hhi")
_NO_TAGS: Final = b"\0"

R = TypeVar("R", bound=Message)


class ConnectionLostError(SkylogError):
    """The broker is unreachable, or the connection was lost."""


class UntrustedBrokerError(SkylogError):
    """The certificate of a broker is not trusted, or the broker does not speak TLS. No retry changes that."""


class BrokerConnection:
    """A connection that has negotiated API versions and logged in.

    A message returned by `receive` is valid until the next call. You can call `send` several times before `receive`:
    the broker responds in order.
    """

    def __init__(self, host: str, port: int, timeout_s: float, security: Security = PLAINTEXT) -> None:
        self.address = f"{host}:{port}"
        self._buffer = bytearray(1 << 20)
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._number = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.is_encrypted:
                self._socket = security.context().wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise UntrustedBrokerError(
                f"the certificate of {self.address} is not trusted: {error.verify_message}; see kafka.ssl.truststore.*"
            ) from error
        except ssl.SSLError as error:
            raise UntrustedBrokerError(f"cannot speak TLS with {self.address}: {error.reason or error}") from error
        except OSError as error:
            raise ConnectionLostError(f"cannot connect to a broker at {self.address}: {error}") from error
        self.send(ApiVersionsRequest(), 0)
        response = self.receive(ApiVersionsResponse)
        self._versions = {row.api_key: Versions(row.min_version, row.max_version) for row in response.api_keys}
        if security.mechanism is not None:
            from skylog.spark.login import log_in  # few clusters need it

            log_in(self, security)

    def close(self) -> None:
        self._socket.close()

    def version(self, request: type[Message], preferred: int) -> int:
        """Return `preferred`, or the nearest version that both sides support."""
        name = request.__name__.removesuffix("Request")
        there = self._versions.get(request.api_key)
        low = high = -1
        if there is not None:
            low, high = max(there.low, request.versions.low), min(there.high, request.versions.high)
        if there is None or low > high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} supports {name} versions {there}, skylog {request.versions}",
            )
        return min(max(preferred, low), high)

    def send(self, request: Message, version: int) -> None:
        self._number += 1
        self._waiting.append((self._number, version, request.api_key))
        frame = bytearray(_SIZE.size)
        frame += _HEADER.pack(request.api_key, version, self._number) + nullable_string(CLIENT_ID)
        if version in request.flexible:
            frame += _NO_TAGS
        request.write_into(frame, version)
        _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ConnectionLostError(f"lost the connection to {self.address}: {error}") from error

    def receive(self, kind: type[R]) -> R:
        """Return the response to the oldest unanswered request. Raises ConnectionLostError."""
        number, version, api_key = self._waiting.popleft()
        assert kind.api_key == api_key
        (size_bytes,) = _SIZE.unpack(self._read(_SIZE.size))
        frame = self._read(size_bytes)
        (correlation_id,) = _SIZE.unpack_from(frame)
        position = _SIZE.size
        if correlation_id != number:
            raise ConnectionLostError(f"{self.address} responded to request {correlation_id} instead of {number}")
        if version in kind.flexible and kind is not ApiVersionsResponse:  # which always has the old header
            tags, position = read_uvarint(frame, position)
            position = skip_tagged_fields(frame, position, tags)
        return kind.read(frame, version, position)[0]

    def ask(self, request: Message, version: int, kind: type[R]) -> R:
        self.send(request, version)
        return self.receive(kind)

    def _read(self, size_bytes: int) -> memoryview:
        if size_bytes > len(self._buffer):
            self._buffer = bytearray(size_bytes + size_bytes // 4)
        view = memoryview(self._buffer)[:size_bytes]
        done = 0
        while done < size_bytes:
            try:
                count = self._socket.recv_into(view[done:])
            except OSError as error:
                raise ConnectionLostError(f"lost the connection to {self.address}: {error}") from error
            if not count:
                raise ConnectionLostError(f"{self.address} closed the connection")
            done += count
        return view


def any_broker(bootstrap: str, request_timeout_s: float, security: Security = PLAINTEXT) -> BrokerConnection:
    """Connect to the first broker of the list that is reachable."""
    error = ConnectionLostError("kafka.bootstrap.servers is empty")
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise OptionError(f"kafka.bootstrap.servers={bootstrap}: expected host:port,host:port")
        try:
            return BrokerConnection(host.strip("[]"), int(port), request_timeout_s, security)
        except ConnectionLostError as lost:
            error = lost
    raise error
