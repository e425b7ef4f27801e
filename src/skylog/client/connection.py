"""The way to a cluster: how librdkafka is set up here, and what its errors mean to people."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka.admin import AdminClient

from skylog.client.errors import BrokerUnreachableError
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError

Client = TypeVar("Client", AdminClient, Producer, Consumer)

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "SKYLOG_BOOTSTRAP"
ATTEMPT_S: Final = 0.25
# A name may stand for several addresses, which are tried one after another: the first refusal decides nothing yet.
GIVE_UP_S: Final = 1.0

_UNREACHABLE: Final = frozenset(
    {
        LibraryError._TRANSPORT,
        LibraryError._ALL_BROKERS_DOWN,
        LibraryError._TIMED_OUT,
        LibraryError._TIMED_OUT_QUEUE,
        LibraryError._RESOLVE,
        LibraryError._MSG_TIMED_OUT,
        LibraryError._WAIT_COORD,
    }
)
# What every client of a cluster needs, whatever it does there.
_SHARED_SETTINGS: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.address.", "client.")
_REASON: Final = re.compile(r"(?:.*failed: |.*/bootstrap: )?(.*?)(?: \(after .*)?", re.DOTALL)


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Hold back Ctrl-C until the end: inside librdkafka's constructors it would be lost, and look like a TypeError."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        before(*caught[0])


class _LibraryLog:
    """What librdkafka has to say, as DEBUG: it calls each attempt to connect an error. What matters is told here."""

    def log(self, _level: int, text: str, *args: object) -> None:
        logger.debug(text, *args)


class Connection:
    """A cluster's address, from which clients of librdkafka are made.

    `down_reason` tells why no broker can be reached at the moment, and is None while there is no sign of that; the
    clients' `poll` keeps it up to date. One object serves one thread.
    """

    def __init__(
        self, bootstrap: str | None = None, config: Mapping[str, Any] | None = None, timeout_s: float = 30.0
    ) -> None:
        """Without an address it is that of the environment's SKYLOG_BOOTSTRAP, or of a broker on this machine.

        Of `config`, settings of librdkafka, all clients get those on how to reach a cluster: TLS, SASL, sockets.
        """
        self.bootstrap = bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        self._shared = {key: value for key, value in (config or {}).items() if key.startswith(_SHARED_SETTINGS)}
        self.timeout_s = timeout_s
        self.down_reason: str | None = None
        self._last_reason = "no answer"

    def another(self) -> Connection:
        """To the same cluster, for another thread."""
        return Connection(self.bootstrap, self._shared, self.timeout_s)

    def admin_client(self) -> AdminClient:
        return self._make(AdminClient, {})

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        return self._make(Producer, settings)

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        return self._make(Consumer, settings)

    def _make(self, kind: type[Client], settings: Mapping[str, Any]) -> Client:
        try:
            with _interrupted_afterwards():
                return kind(self._settings(settings))
        except KafkaException as error:
            raise ConfigError(f"librdkafka refuses the configuration: {_library_error(error).str()}") from error

    def metadata(self, client: AdminClient | Producer | Consumer) -> Any:
        """The brokers and all topics, as the library's ClusterMetadata.

        Raises BrokerUnreachableError, after about a second if nobody listens. Always asks for all topics: a question
        for one would create it on a cluster that does so.
        """
        started = time.monotonic()
        while True:
            try:
                metadata = client.list_topics(timeout=ATTEMPT_S)
            except KafkaException as error:
                elapsed_s = time.monotonic() - started
                client.poll(0)
                refused = self.down_reason is not None and elapsed_s >= GIVE_UP_S
                if _library_error(error).code() not in _UNREACHABLE or refused or elapsed_s >= self.timeout_s:
                    raise self.error(error, "asking for the topics") from error
            else:
                self.down_reason = None
                return metadata

    def error(self, error: LibraryError | KafkaException, doing: str) -> SkylogError:
        """What to raise for an error of librdkafka that came while `doing` something."""
        cause = _library_error(error)
        code = cause.code()
        if code in _UNREACHABLE:
            return BrokerUnreachableError(self.bootstrap, self._last_reason)
        if code >= 0 and code in ErrorCode._value2member_map_:
            return KafkaError(ErrorCode(code), f"{doing}: {cause.str()}")
        return SkylogError(f"{doing}: {cause.str()}")

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "skylog",
            "error_cb": self._on_error,
            "logger": _LibraryLog(),
            "reconnect.backoff.max.ms": 2000,
            **self._shared,
            **settings,
        }

    def _on_error(self, error: LibraryError) -> None:
        if error.code() == LibraryError._ALL_BROKERS_DOWN:
            if self.down_reason is None:
                logger.info("no broker can be reached at %s: %s", self.bootstrap, self._last_reason)
            self.down_reason = self._last_reason
        elif error.code() in _UNREACHABLE and (match := _REASON.fullmatch(error.str())):
            self._last_reason = match[1]


def _library_error(error: LibraryError | KafkaException) -> LibraryError:
    return error.args[0] if isinstance(error, KafkaException) else error
