"""The key set that signs the tokens of OAUTHBEARER: from a file, read again when it changes, or from a URL."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Final
from urllib.parse import unquote, urlsplit

from joserfc.jwk import KeySet

from skylog.errors import ConfigError
from skylog.security.oauth import parse_key_set, read_key_set

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0


class KeySource:
    """The current key set. A set that cannot be read leaves the former one in place. Raises ConfigError at first."""

    def __init__(self, url: str, refresh_ms: int) -> None:
        if urlsplit(url).scheme not in ("file", "http", "https"):
            raise ConfigError(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: a file: or https: URL of the keys of tokens"
            )
        if url.startswith("http:"):
            logger.warning("%s is not encrypted: who is on the way can replace the keys of tokens; use https:", url)
        self._url = url
        self._path = unquote(urlsplit(url).path) if url.startswith("file:") else None
        self._refresh_s = refresh_ms / 1000
        self._loaded_at = time.monotonic()
        self._stamp = self._stamp_of_file()
        self._reading = threading.Lock()
        try:
            self._keys = parse_key_set(read_key_set(url))
        except OSError as error:
            raise ConfigError(f"cannot read sasl.oauthbearer.jwks.endpoint.url={url}: {error}") from error

    def _stamp_of_file(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def current(self) -> KeySet:
        """Return the keys. A file that has changed is read now, a URL in a thread, for later logins."""
        if self._path is not None:
            stamp = self._stamp_of_file()
            if stamp != self._stamp:
                self._stamp = stamp
                self._read()
        elif time.monotonic() - self._loaded_at > self._refresh_s:
            self._read_aside()
        return self._keys

    def note_failure(self) -> None:
        """Read the keys again after a token that none of them has signed: the issuer may have new ones."""
        if self._path is None and time.monotonic() - self._loaded_at > RETRY_SECONDS:
            self._read_aside()

    def _read_aside(self) -> None:
        self._loaded_at = time.monotonic()
        threading.Thread(target=self._read, name="skylog-key-set", daemon=True).start()

    def _read(self) -> None:
        with self._reading:
            try:
                self._keys = parse_key_set(read_key_set(self._url))
            except (OSError, ConfigError) as error:
                logger.error("the former keys for tokens stay in use: %s", error)
