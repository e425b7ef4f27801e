"""The connection to a cluster: configures librdkafka and translates its errors."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka.admin import AdminClient

from skylog.client.addresses import check_addresses, split_addresses
from skylog.client.errors import BrokerUnreachableError
from skylog.client.handles import Handle, check_handle, new_handle
from skylog.client.kafka_settings import as_librdkafka, configured_by_environment
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError

if TYPE_CHECKING:
    from skylog.net.peer import PeerSecurity

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())
outage_logger = logging.getLogger("skylog.client")
"""Without a handler of the application, its warnings go to the standard error: a program that waits must say so."""

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "SKYLOG_BOOTSTRAP"
ATTEMPT_S: Final = 0.25
# A host name may resolve to several addresses, which are tried one after another: the first refusal is not final.
GIVE_UP_S: Final = 1.0
_SAME_OUTAGE_S: Final = 60.0
"""Errors with less time between them are of one outage. A host that drops packets makes one every 30 seconds."""
_WARN_EVERY_S: Final = 60.0
_PROBE_S: Final = 0.5
_NEVER: Final = float("-inf")
_KEPT_ERRORS: Final = 100

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
_NO_ANSWER: Final = "no answer"
_SETTINGS_FILE: Final = "in the file of --config or SKYLOG_CONFIG"
_HINTS: Final = {
    LibraryError._AUTHENTICATION: f"check the login {_SETTINGS_FILE}",
    LibraryError._SSL: f"check the settings ssl.* {_SETTINGS_FILE}",
}
# Settings that every client of a cluster needs.
_SHARED_SETTINGS: Final = ("security.", "sasl.", "ssl.", "enable.ssl.", "socket.", "broker.address.", "client.")
_PROTOCOL: Final = "security.protocol"
_OTHER_PROTOCOL: Final = "Invalid response size"
_REASON: Final = re.compile(r"(?:.*failed: |.*/bootstrap: )?(.*?)(?: \(after .*)?", re.DOTALL)


def shared_settings(config: Mapping[str, object] | None) -> dict[str, object]:
    """Return the settings on how to reach a cluster, which apply to producers, consumers and admin clients."""
    return {key: value for key, value in (config or {}).items() if key.startswith(_SHARED_SETTINGS)}


@contextmanager
def _deferred_interrupt() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block: in librdkafka's constructors it would be lost, or become a TypeError."""
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
    """Logs librdkafka's lines as DEBUG: it logs every connection attempt as an error."""

    def log(self, _level: int, text: str, *args: object) -> None:
        logger.debug(text, *args)


class _NoLog:
    """Ignores librdkafka's lines. `log` is a function in C, see `Connection`."""

    log = chain


class Connection:
    """The address of a cluster. Creates librdkafka clients for it.

    `down_reason` is the reason why no broker can be reached, None while there is no sign of that. The clients' `poll`
    updates it. Use one object per thread.

    The callbacks for errors and log lines, which librdkafka calls all the time while no broker answers, are functions
    in C: Python runs signal handlers between its own instructions only. If Ctrl-C interrupted such a callback,
    confluent-kafka would lose the KeyboardInterrupt and raise SystemError. So the callback only stores the error.
    """

    def __init__(
        self, bootstrap: str | None = None, config: Mapping[str, object] | None = None, timeout_s: float = 30.0
    ) -> None:
        """`bootstrap` defaults to the environment variable SKYLOG_BOOTSTRAP, then to a broker on this machine.

        `config` holds settings with the names of librdkafka or of Kafka's Java clients. Those on how to reach a cluster
        (TLS, SASL, sockets) apply to all clients. Unless it says how, by `security.protocol`, the file that the
        environment variable SKYLOG_CONFIG names does. Raises ConfigError if `bootstrap` or the file cannot be read.
        """
        self.bootstrap = bootstrap or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        check_addresses(self.bootstrap)
        chosen = as_librdkafka(config or {})
        if _PROTOCOL not in chosen:
            chosen = {**configured_by_environment(), **chosen}
        self._shared = shared_settings(chosen)
        self._peer_security: PeerSecurity | None = None
        self.timeout_s = timeout_s
        self._errors: deque[LibraryError] = deque(maxlen=_KEPT_ERRORS)
        self._down_reason: str | None = None
        self._last_reason = _NO_ANSWER
        self._last_code: int = LibraryError._TRANSPORT
        self._waiting: str | None = None
        self._down_since_s = self._down_at_s = self._warned_at_s = _NEVER

    @property
    def down_reason(self) -> str | None:
        """Why no broker can be reached; None while there is no sign of that."""
        self.take_errors()
        return self._down_reason

    @down_reason.setter
    def down_reason(self, reason: str | None) -> None:
        self.take_errors()
        self._down_reason = reason
        if reason is None:
            self._last_code = LibraryError._TRANSPORT
            self._down_at_s = _NEVER

    def take_errors(self, consumer: Consumer | None = None, *, warns: bool = False) -> None:
        """Handle the errors that librdkafka has reported in calls of `poll`.

        If it `warns`, a lasting outage is logged (see `warn_as`). A consumer may have had no message for long after an
        outage, so it is asked first whether a broker answers; not in one of its callbacks.
        """
        has_failed = False
        while self._errors:
            with contextlib.suppress(IndexError):  # another thread has taken it
                has_failed |= self._on_error(self._errors.popleft())
        if has_failed and warns:
            self._warn(consumer)

    @property
    def is_plaintext(self) -> bool:
        """Whether the connections use neither TLS nor SASL."""
        return str(self._shared.get("security.protocol", "plaintext")).lower() == "plaintext"

    def peer_security(self) -> PeerSecurity | None:
        """Return how connections without librdkafka are made, None in plain text. Raises ConfigError."""
        if self.is_plaintext:
            return None
        if self._peer_security is None:
            from skylog.client.peer_security import peer_security

            self._peer_security = peer_security(self._shared)
        return self._peer_security

    def login(self) -> tuple[str, str] | None:
        """Return the user and the password that it logs in with, None without such a login."""
        has_login = str(self._shared.get(_PROTOCOL, "")).upper().startswith("SASL_")
        user, password = (str(self._shared.get(key) or "") for key in ("sasl.username", "sasl.password"))
        return (user, password) if has_login and user else None

    @property
    def user(self) -> str | None:
        """The user who logs in with a password, None without such a login."""
        login = self.login()
        return None if login is None else login[0]

    def security_as(self, user: str, password: str) -> PeerSecurity:
        """Return how to connect as another user, with the same mechanism. Reads files. Raises ConfigError."""
        from skylog.client.peer_security import peer_security

        found = peer_security({**self._shared, "sasl.username": user, "sasl.password": password})
        assert found is not None
        return found

    def addresses(self) -> list[tuple[str, int]]:
        """Return the hosts and ports of the brokers to begin with."""
        return split_addresses(self.bootstrap)

    def warn_as(self, waiting: str) -> None:
        """Log a warning while no broker can be reached, once and then every minute: `waiting` says what waits."""
        self._waiting = waiting

    def another(self) -> Connection:
        """Return a new connection to the same cluster, for another thread."""
        return Connection(self.bootstrap, self._shared, self.timeout_s)

    def admin_client(self) -> AdminClient:
        return self._make(AdminClient, {})

    def producer(self, settings: Mapping[str, object]) -> Producer:
        return self._make(Producer, settings)

    def consumer(self, settings: Mapping[str, object]) -> Consumer:
        return self._make(Consumer, settings)

    def _make(self, kind: type[Handle], settings: Mapping[str, object]) -> Handle:
        try:
            with _deferred_interrupt():
                return new_handle(kind, self._settings(settings))
        except KafkaException as error:
            raise ConfigError(f"librdkafka refuses the configuration: {_library_error(error).str()}") from error

    def metadata(self, client: AdminClient | Producer | Consumer) -> Any:
        """Return the brokers and all topics, as the library's ClusterMetadata.

        Raises BrokerUnreachableError, after about a second if the connection is refused. Always requests all topics:
        a request for one topic would create it on a cluster with auto-creation.
        """
        check_handle(client)
        started = time.monotonic()
        while True:
            try:
                metadata = client.list_topics(timeout=ATTEMPT_S)
            except KafkaException as error:
                elapsed_s = time.monotonic() - started
                client.poll(0)
                refused = self.down_reason is not None and elapsed_s >= GIVE_UP_S
                if _library_error(error).code() not in _UNREACHABLE or refused or elapsed_s >= self.timeout_s:
                    raise self.error(error, "cannot fetch the metadata") from error
            else:
                self.down_reason = None
                return metadata

    def error(self, error: LibraryError | KafkaException, doing: str) -> SkylogError:
        """Translate an error of librdkafka to the exception to raise. `doing` becomes the start of its message.

        It loses its traceback: the future that it comes from keeps it, and would keep the callers and their clients.
        """
        if isinstance(error, KafkaException):
            error.__traceback__ = None
        cause = _library_error(error)
        code = cause.code()
        if code in _UNREACHABLE:
            return self.unreachable()
        if code >= 0 and code in ErrorCode._value2member_map_:
            return KafkaError(ErrorCode(code), f"{doing}: {cause.str()}")
        return SkylogError(f"{doing}: {cause.str()}")

    def unreachable(self) -> BrokerUnreachableError:
        """Return the error that no broker can be reached, with what is known of the reason."""
        hint = _HINTS.get(self._last_code)
        if hint is None and self._last_reason == _NO_ANSWER:
            hint = (
                f"is one running? if it requires TLS or a login, say how {_SETTINGS_FILE}"
                if self.is_plaintext
                else f"is one running, with this security.protocol? it is {_SETTINGS_FILE}"
            )
        return BrokerUnreachableError(self.bootstrap, self._last_reason, *([] if hint is None else [hint]))

    def _settings(self, settings: Mapping[str, object]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "skylog",
            "error_cb": self._errors.append,
            "logger": _LibraryLog() if logger.isEnabledFor(logging.DEBUG) else _NoLog(),
            "reconnect.backoff.max.ms": 2000,
            **self._shared,
            **as_librdkafka(settings),
        }

    def _on_error(self, error: LibraryError) -> bool:
        """Take an error of librdkafka; return whether no broker can be reached, as far as that is known.

        librdkafka reports at the beginning of an outage that all brokers are down, and often, but not always, again
        after further attempts. Until a broker has answered, every failed attempt therefore counts.
        """
        is_known = self._last_code in _HINTS and error.code() == LibraryError._TRANSPORT
        if error.code() == LibraryError._ALL_BROKERS_DOWN:
            self._down_reason = self._last_reason
        elif _OTHER_PROTOCOL in error.str():
            self._last_reason, self._last_code = "what listens there does not speak the Kafka protocol", error.code()
        elif (error.code() in _UNREACHABLE or error.code() in _HINTS) and (match := _REASON.fullmatch(error.str())):
            if not is_known:  # an error of the transport that follows one of TLS says less
                self._last_reason, self._last_code = match[1], error.code()
        else:
            return False
        if self._down_reason is None:
            return False
        self._note_outage()
        return True

    def _note_outage(self) -> None:
        now_s = time.monotonic()
        if now_s - self._down_at_s > _SAME_OUTAGE_S:
            self._down_since_s = now_s
            logger.info("no broker can be reached at %s: %s", self.bootstrap, self._last_reason)
        self._down_at_s = now_s

    def _warn(self, consumer: Consumer | None) -> None:
        """Log an outage that lasts, unless a broker answers now: others may fail for a reason of their own."""
        now_s = time.monotonic()
        is_lasting = now_s - self._down_since_s >= GIVE_UP_S
        if self._waiting is None or not is_lasting or now_s - self._warned_at_s < _WARN_EVERY_S:
            return
        if consumer is not None:
            with contextlib.suppress(KafkaException):
                consumer.list_topics(timeout=_PROBE_S)
                self.down_reason = None
                return
        self._warned_at_s = now_s
        outage_logger.warning(
            "no broker can be reached at %s (%s); %s", self.bootstrap, self._last_reason, self._waiting
        )


def _library_error(error: LibraryError | KafkaException) -> LibraryError:
    return error.args[0] if isinstance(error, KafkaException) else error
