"""HTTP requests to a schema registry: several addresses, connections that stay open, a login, TLS.

Knows no endpoint. A request goes to the address that answered last. If that cannot be reached, or answers that it
cannot do its work now (status 5xx), the others are tried in order. Every request of the registry's API may be repeated:
to register a schema a second time gives the same id.
"""

from __future__ import annotations

import difflib
import http.client
import json
import os
import ssl
import threading
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from skylog.errors import ConfigError, SkylogError

URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
CREDENTIALS_SOURCE: Final = "basic.auth.credentials.source"
USER_INFO_SOURCE: Final = "USER_INFO"
SASL_INHERIT: Final = "SASL_INHERIT"
"""The user is the one who logs in to the cluster."""
TOKEN: Final = "bearer.auth.token"
CA_FILE: Final = "ssl.ca.location"
CERTIFICATE_FILE: Final = "ssl.certificate.location"
KEY_FILE: Final = "ssl.key.location"
KEY_PASSWORD: Final = "ssl.key.password"
SETTINGS: Final = (URL, USER_INFO, TOKEN, CA_FILE, CERTIFICATE_FILE, KEY_FILE, KEY_PASSWORD)
DEFAULT_TIMEOUT_S: Final = 10.0

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_LARGEST_MESSAGE: Final = 500


class RegistryError(SkylogError):
    """An error that the registry reports. `code` is Confluent's error code, whose first three digits are the status."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class RegistryUnreachableError(RegistryError):
    """No registry could be reached, or none was able to answer."""


@dataclass(frozen=True)
class RegistryAddress:
    """How to reach a registry. `of` reads it from settings with Confluent's names."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> RegistryAddress:
        """Read the settings. Raises ConfigError for unknown names and invalid addresses."""
        for name in settings:
            if name not in SETTINGS:
                close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
                raise ConfigError(
                    f"unknown setting '{name}' of a schema registry"
                    + (f"; did you mean '{close[0]}'?" if close else "")
                )
        urls = tuple(url.strip().rstrip("/") for url in settings.get(URL, "").split(",") if url.strip())
        if not urls:
            raise ConfigError(f"{URL} is missing: the address of a schema registry, such as http://127.0.0.1:8081")
        for url in urls:
            _check_url(url)
        return cls(urls, *(settings.get(name) or None for name in SETTINGS[1:]))


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{URL}: '{url}' is not an address such as http://127.0.0.1:8081")


class RegistryHttp:
    """Sends requests to a registry, one at a time. Safe in any thread, and in a forked process."""

    def __init__(self, address: RegistryAddress, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._parts: Sequence[SplitResult] = [urlsplit(url) for url in address.urls]
        self._preferred = 0
        self._tls = _tls_context(address) if any(part.scheme == "https" for part in self._parts) else None
        self._open: dict[int, http.client.HTTPConnection] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the document that the registry answers with. Raises RegistryError."""
        if self._pid != os.getpid():  # a forked process has the parent's connections, and maybe its locked lock
            self._open, self._lock, self._pid = {}, threading.Lock(), os.getpid()
        content = None if body is None else json.dumps(body).encode()
        failures = []
        with self._lock:
            count = len(self._parts)
            for number in [(self._preferred + step) % count for step in range(count)]:
                try:
                    status, answer = self._try_twice(number, method, path, content)
                except (OSError, http.client.HTTPException) as error:
                    failures.append(f"{_shown(self._parts[number])}: {error or type(error).__name__}")
                    continue
                if status >= 500:
                    failures.append(f"{_shown(self._parts[number])}: {_message(status, answer)[0]}")
                    continue
                self._preferred = number
                return self._document(status, answer)
        raise RegistryUnreachableError(
            f"no schema registry answered ({'; '.join(failures)}): start one with `skylog registry`, or correct {URL}"
        )

    def close(self) -> None:
        with self._lock:
            for connection in self._open.values():
                connection.close()
            self._open.clear()

    def _try_twice(self, number: int, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Send over the open connection. If the registry has closed that meanwhile, send over a new one."""
        if number in self._open:
            try:
                return self._try(number, method, path, content)
            except (OSError, http.client.HTTPException):
                pass  # a new connection tells whether the registry can be reached
        return self._try(number, method, path, content)

    def _try(self, number: int, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        parts = self._parts[number]
        connection = self._open.pop(number, None) or self._connection(parts)
        try:
            connection.request(method, parts.path.rstrip("/") + path, content, self._headers(parts, content))
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            raise
        if not response.will_close:
            self._open[number] = connection
        return response.status, answer

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)

    def _headers(self, parts: SplitResult, content: bytes | None) -> dict[str, str]:
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if content is not None:
            headers["Content-Type"] = _CONTENT_TYPE
        login = self._address.user_info
        if login is None and parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if self._address.token is not None:
            headers["Authorization"] = f"Bearer {self._address.token}"
        elif login is not None:
            headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        return headers

    def _document(self, status: int, answer: bytes) -> Any:
        if status >= 400:
            message, code = _message(status, answer)
            if status in (401, 403):
                message += f"; set {USER_INFO}=user:password or {TOKEN} of a user with the right to do this"
            raise RegistryError(message, code)
        try:
            return json.loads(answer)
        except ValueError:
            raise RegistryError(
                f"{_shown(self._parts[self._preferred])} does not answer like a schema registry: correct {URL}"
            ) from None


def _message(status: int, answer: bytes) -> tuple[str, int]:
    """Return the message and the code of an error."""
    try:
        document = json.loads(answer)
        return str(document["message"])[:_LARGEST_MESSAGE], int(document.get("error_code", status))
    except (ValueError, TypeError, KeyError):
        phrase = http.client.responses.get(status, "unknown status")
        return f"the registry answered with status {status} ({phrase})", status


def _shown(parts: SplitResult) -> str:
    """Return the address without a password."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _tls_context(address: RegistryAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
        if address.certificate_file is not None:
            context.load_cert_chain(address.certificate_file, address.key_file, address.key_password or "")
    except OSError as error:
        raise ConfigError(f"cannot load the certificates of {CA_FILE} or {CERTIFICATE_FILE}: {error}") from error
    return context
