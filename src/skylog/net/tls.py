"""TLS under a connection: contexts from PEM, handshakes, and the transport.

Handshakes run in threads, because one costs as much as a thousand small requests. Each has HANDSHAKE_SECONDS, and there
are at most MAX_HANDSHAKES at a time. A further one takes the place of the oldest, so clients that never finish theirs
do not take the broker from others.

Certificates are read again when their files change. A context that cannot be made leaves the one before in place. On a
listener there is no session resumption: every connection presents its certificate, and a certificate that is no longer
trusted is refused from the next connection on.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import ssl
import tempfile
import time
from asyncio import AbstractEventLoop, Future, TimerHandle, get_running_loop
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from skylog.errors import ConfigError
from skylog.limited_logger import LimitedLogger
from skylog.net.transport import Buffer, Transport

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)  # for lines that clients can cause

HANDSHAKE_SECONDS: Final = 10.0
MAX_HANDSHAKES: Final = 1024
FILE_CHECK_SECONDS: Final = 1.0
THREADS: Final = 2
_CHUNK_BYTES: Final = 128 * 1024
_RECORDS_AT_ONCE: Final = 64  # a megabyte, unless the client sends small ones, which cost as much time each
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/=]+")
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Keys and trusted certificates: PEM files, or PEM text, which takes precedence."""

    keystore_location: str = ""
    certificate_chain: str = ""
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_location: str = ""
    trusted: str = ""
    client_auth: str = "none"
    protocols: tuple[str, ...] = tuple(_VERSIONS)

    def files(self) -> list[str]:
        return [path for path in (self.keystore_location, self.truststore_location) if path]


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """Return the context of a listener. Raises ConfigError."""
    if not config.keystore_location and not (config.certificate_chain and config.key):
        raise ConfigError(
            "TLS needs ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key, in PEM"
        )
    if config.client_auth != "none" and not (config.truststore_location or config.trusted):
        raise ConfigError(
            f"ssl.client.auth={config.client_auth} needs ssl.truststore.location or ssl.truststore.certificates"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_mode = _VERIFY[config.client_auth]
    return _load(context, config)


def client_context(config: TlsConfig, *, checks_host: bool = True) -> ssl.SSLContext:
    """Return the context of a client. It trusts the system's authorities if `config` has none. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    if not (config.truststore_location or config.trusted):
        context.load_default_certs()
    return _load(context, config)


def _load(context: ssl.SSLContext, config: TlsConfig) -> ssl.SSLContext:
    versions = [_VERSIONS[name] for name in config.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    try:
        if config.certificate_chain and config.key:
            _load_chain(context, normal_pem(config.certificate_chain), normal_pem(config.key), config.key_password)
        elif config.keystore_location:
            pem = Path(config.keystore_location).read_text("ascii")
            _load_chain(context, pem, pem, config.key_password)
        trusted = config.trusted
        if not trusted and config.truststore_location:
            trusted = Path(config.truststore_location).read_text("ascii")
        if trusted:
            context.load_verify_locations(cadata=normal_pem(trusted))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; its text has no secrets
        raise ConfigError(f"cannot load the certificates or keys for TLS: {error}") from error
    return context


def _load_chain(context: ssl.SSLContext, chain: str, key: str, password: str) -> None:
    """Load certificates and their key. The ssl module reads them from files only."""
    with tempfile.TemporaryDirectory(prefix="skylog-tls-") as folder:  # only its owner may read it
        path = Path(folder) / "chain.pem"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(normal_pem(key) + normal_pem(chain, without_keys=True))
        # A password function keeps OpenSSL from asking for the password of an encrypted key on the terminal.
        context.load_cert_chain(path, password=lambda: password)


def normal_pem(text: str, *, without_keys: bool = False) -> str:
    """Return the PEM blocks of `text` in the usual form. A setting may have them on one line, as in Kafka."""
    blocks = []
    for label, body in _PEM.findall(text.replace("\\n", "\n")):
        if without_keys and "PRIVATE KEY" in label:
            continue
        base64 = "".join(_BASE64.findall(body))
        lines = [base64[at : at + 64] for at in range(0, len(base64), 64)]
        blocks.append("\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]))
    if not blocks:
        raise ValueError("no PEM block such as -----BEGIN CERTIFICATE----- found")
    return "".join(blocks)


class TlsTransport:
    """A TCP socket with TLS. The data of files passes through Python, which encrypts it."""

    __slots__ = ("_descriptor", "_has_ended", "_socket")

    send_parts = None

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self._has_ended = False

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The verified certificate of the peer, in the form of `ssl`; None if it has presented none."""
        return self._socket.getpeercert() or None

    @property
    def has_pending(self) -> bool:
        return self._has_ended or self._socket.pending() > 0

    def fileno(self) -> int:
        return self._descriptor

    def receive_into(self, buffer: memoryview, /) -> int:
        """Receive several records, of up to 16 KB each, until `buffer` is full or nothing more is there."""
        size, total = len(buffer), 0
        if self._has_ended:
            return 0
        try:
            for _ in range(_RECORDS_AT_ONCE):
                count = self._socket.recv_into(buffer[total:] if total else buffer)
                if not count:
                    self._has_ended = total > 0
                    break
                total += count
                if total == size:
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not total:
                raise BlockingIOError from None
        except OSError:
            if not total:
                raise
            self._has_ended = True  # what was received before the connection broke counts
        return total

    def send(self, data: Buffer, flags: int, /) -> int:
        """Send some of `data`. After BlockingIOError, repeat the call with data that begins in the same way."""
        try:
            return self._socket.send(data if len(data) <= _CHUNK_BYTES else memoryview(data)[:_CHUNK_BYTES])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send_file(self, descriptor: int, position: int, length: int) -> int:
        data = os.pread(descriptor, min(length, _CHUNK_BYTES), position)
        return self.send(data, 0) if data else 0

    def local_address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def is_broken(self) -> bool:
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def close(self) -> None:
        """Send a close_notify, without waiting for the peer's, and close the socket."""
        with suppress(OSError, ValueError):  # the peer may not wait for it, or the connection is broken
            self._socket.unwrap()
        self._socket.close()


MakeContext = Callable[[TlsConfig], ssl.SSLContext]


class Credentials:
    """The current context of a listener or a client. It follows the configuration and the files.

    Use it on the event loop. Raises ConfigError if the first context cannot be made.
    """

    def __init__(self, config: TlsConfig, make_context: MakeContext = server_context) -> None:
        self._config = config
        self._make_context = make_context
        self._seen = _stamps(config)
        self._checked_at = 0.0
        self._context = make_context(config)

    def check(self, config: TlsConfig) -> None:
        """Raise ConfigError if another configuration cannot be used."""
        if config != self._config:
            self._make_context(config)

    def reconfigure(self, config: TlsConfig) -> None:
        """Use another configuration for new connections, if it is valid. Raises ConfigError otherwise."""
        if config != self._config:
            self._seen, self._context = _stamps(config), self._make_context(config)
            self._config = config
            logger.info("new connections use other keys and certificates")

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Looks at the files at most once in FILE_CHECK_SECONDS."""
        now = time.monotonic()
        if now - self._checked_at >= FILE_CHECK_SECONDS:
            self._checked_at = now
            stamps = _stamps(self._config)
            if stamps != self._seen:
                self._seen = stamps
                try:
                    self._context = self._make_context(self._config)
                    logger.info("the keys and certificates of %s were read again", ", ".join(self._config.files()))
                except ConfigError as error:
                    logger.error("the former keys and certificates stay in use: %s", error)
        return self._context


def _stamps(config: TlsConfig) -> list[tuple[int, int, int] | None]:
    """Return what changes with the content of the files."""
    found: list[tuple[int, int, int] | None] = []
    for path in config.files():
        try:
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append(None)
    return found


class TlsHandshakes:
    """The handshakes of one listener. Use it on the event loop."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self.failed_total = 0
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="skylog-tls")
        self._open: dict[_Handshake, None] = {}  # the oldest first

    def begin(
        self, sock: socket.socket, peer: str, admit: Callable[[Transport], object], abandon: Callable[[], object]
    ) -> None:
        if len(self._open) >= MAX_HANDSHAKES:
            limited_logger.warning("%d handshakes are under way: the oldest gives way", MAX_HANDSHAKES)
            next(iter(self._open)).fail("there are too many others")
        loop = get_running_loop()
        try:
            tls = self.credentials.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:
            logger.debug("%s disconnected before its handshake: %s", peer, error)
            sock.close()
            abandon()
            return
        handshake = _Handshake(self, loop, self._executor, tls, peer, admit, abandon)
        self._open[handshake] = None
        handshake.start()

    def end(self, handshake: _Handshake, *, failed: bool) -> None:
        self._open.pop(handshake, None)
        self.failed_total += failed

    def close(self) -> None:
        for handshake in list(self._open):
            handshake.fail("the broker stops")
        self._executor.shutdown(wait=False)


class _Handshake:
    """One handshake. Its steps run in a thread, and never two at a time."""

    __slots__ = (
        "_abandon",
        "_admit",
        "_executor",
        "_fd",
        "_has_begun",
        "_is_over",
        "_is_stepping",
        "_loop",
        "_owner",
        "_peer",
        "_timer",
        "_tls",
    )

    def __init__(
        self,
        owner: TlsHandshakes,
        loop: AbstractEventLoop,
        executor: ThreadPoolExecutor,
        tls: ssl.SSLSocket,
        peer: str,
        admit: Callable[[Transport], object],
        abandon: Callable[[], object],
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._executor = executor
        self._tls = tls
        self._fd = tls.fileno()
        self._peer = peer
        self._admit = admit
        self._abandon = abandon
        self._has_begun = self._is_stepping = self._is_over = False
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, self.fail, f"not done in {HANDSHAKE_SECONDS:g} s")
        self._loop.add_reader(self._fd, self._on_ready)  # the client speaks first

    def _on_ready(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._is_stepping = True
        self._loop.run_in_executor(self._executor, self._tls.do_handshake).add_done_callback(self._stepped)

    def _stepped(self, step: Future[None]) -> None:
        self._is_stepping = False
        error = step.exception()
        if not isinstance(error, ssl.SSLEOFError | ConnectionError):
            self._has_begun = True
        if self._is_over:
            self._tls.close()
        elif error is None:
            self._finish()
        elif isinstance(error, ssl.SSLWantReadError):
            self._loop.add_reader(self._fd, self._on_ready)
        elif isinstance(error, ssl.SSLWantWriteError):
            self._loop.add_writer(self._fd, self._on_ready)
        else:
            self.fail(str(getattr(error, "reason", None) or error))

    def _finish(self) -> None:
        self._end(failed=False)
        self._admit(TlsTransport(self._tls))

    def fail(self, reason: str) -> None:
        """Close the socket, unless a thread uses it: then when that is done.

        A client that has sent nothing has not failed: it may be another broker that watches this process.
        """
        log = limited_logger.warning if self._has_begun else logger.debug
        log("the TLS handshake of %s failed: %s", self._peer, reason)
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._end(failed=self._has_begun)
        if not self._is_stepping:
            self._tls.close()
        self._abandon()

    def _end(self, *, failed: bool) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner.end(self, failed=failed)
