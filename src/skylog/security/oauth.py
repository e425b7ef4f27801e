"""OAUTHBEARER (RFC 7628): a signed token (JWT) says who the client is. Needs `pip install 'skylog[secure]'`.

The token must be signed by a key of the key set (JWKS), which is read from a file or a URL and again when a token names
a key that it does not have. Unsigned tokens are refused.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from skylog.errors import ConfigError
from skylog.security.sasl import FAILED, Identity, LoginError

ALGORITHMS: Final = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
FETCH_SECONDS: Final = 10.0
MAX_KEY_SET_BYTES: Final = 1024 * 1024
MAX_TOKEN_BYTES: Final = 64 * 1024
MAX_LIFETIME_S: Final = 30 * 24 * 3600.0  # of a session, however long the token is valid
_MESSAGE = re.compile(
    rb"[ny],(?:a=(?P<authzid>[^,]*))?,\x01auth=[Bb]earer (?P<token>[\w.~+/=-]+)\x01(?:[^\x01]+\x01)*\x01"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must say. Empty: it is not checked."""

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    user_claim: str = "sub"
    clock_skew_s: float = 30.0


def read_key_set(url: str) -> bytes:
    """Return the key set at a URL. May wait for the network. Raises OSError."""
    if url.startswith("file:"):
        return Path(unquote(urlsplit(url).path)).read_bytes()
    with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as response:
        data: bytes = response.read(MAX_KEY_SET_BYTES)
    return data


def parse_key_set(data: bytes) -> KeySet:
    """Raises ConfigError."""
    try:
        import orjson

        return KeySet.import_key_set(orjson.loads(data))
    except (ValueError, KeyError, TypeError, JoseError) as error:
        raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url is not a key set: {error}") from error


class OAuthExchange:
    """One login."""

    def __init__(
        self,
        keys: KeySet,
        rules: TokenRules,
        now_s: Callable[[], float] = time.time,
        on_unknown_key: Callable[[], object] = lambda: None,
    ) -> None:
        self.identity: Identity | None = None
        self._keys = keys
        self._rules = rules
        self._now_s = now_s
        self._on_unknown_key = on_unknown_key

    def respond(self, token: bytes) -> bytes:
        match = _MESSAGE.fullmatch(token) if len(token) <= MAX_TOKEN_BYTES else None
        if match is None:
            raise LoginError(FAILED)
        user, lifetime_s = self._verify(match["token"].decode())
        if match["authzid"] and match["authzid"].decode(errors="replace") != user:
            raise LoginError(FAILED)
        self.identity = Identity(user, lifetime_s)
        return b""

    def _verify(self, token: str) -> tuple[str, float]:
        try:
            claims = jwt.decode(token, self._keys, algorithms=ALGORITHMS).claims
        except (JoseError, ValueError, KeyError, TypeError) as error:  # TypeError: an odd header
            self._on_unknown_key()
            raise LoginError(FAILED) from error
        rules, now_s = self._rules, self._now_s()
        user, expires, begins = claims.get(rules.user_claim), _number(claims.get("exp")), _number(claims.get("nbf", 0))
        if not isinstance(user, str) or not user or begins > now_s + rules.clock_skew_s:
            raise LoginError(FAILED)
        if expires + rules.clock_skew_s <= now_s:
            raise LoginError("Authentication failed: the token has expired")
        if rules.issuer and claims.get("iss") != rules.issuer:
            raise LoginError(FAILED)
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if rules.audiences and not any(each in named for each in rules.audiences):
            raise LoginError(FAILED)
        return user, min(max(expires - now_s, 1.0), MAX_LIFETIME_S)


def _number(value: Any) -> float:
    """Return a time of a token. Raises LoginError if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 2**63:  # nan is not, either
        raise LoginError(FAILED)
    return float(value)
