"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side.

The broker keeps no password: what it stores verifies a login, but does not allow one. An unknown user gets a salt, too,
and fails at the same step as a wrong password, so that nobody learns which users there are. The salt is always the same
for a name, from every broker, and as long as those of real users.

    client: n,,n=USER,r=NONCE                        server: r=NONCE+OURS,s=SALT,i=ITERATIONS
    client: c=biws,r=NONCE+OURS,p=PROOF              server: v=SIGNATURE
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from skylog.security.sasl import FAILED, Identity, LoginError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
SALT_BYTES: Final = 64  # as librdkafka makes them
MAX_CLIENT_ITERATIONS: Final = 100_000  # that a client accepts from a broker: they run on the event loop of a broker
_FIRST = re.compile(
    r"(?P<head>n|y|p=[^,]*),(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<user>(?:[^=,]|=2C|=3D)+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)"
)
_FINAL = re.compile(
    r"(?P<bare>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[^p][^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_CHALLENGE = re.compile(
    rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,[ -~]*)?"
)


class Mechanism(IntEnum):
    """The mechanisms, with Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def wire_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.digest)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.digest, data).digest()


MECHANISMS: Final = {mechanism.wire_name: mechanism for mechanism in Mechanism}


class Credential(NamedTuple):
    """What is stored for a user and a mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_password(cls, mechanism: Mechanism, password: str, iterations: int = MIN_ITERATIONS) -> Credential:
        salt = secrets.token_bytes(SALT_BYTES)
        return cls.of_salted(mechanism, salt, salted(mechanism, password, salt, iterations), iterations)

    @classmethod
    def of_salted(cls, mechanism: Mechanism, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
        client_key = mechanism.hmac(salted_password, b"Client Key")
        return cls(salt, mechanism.hash(client_key), mechanism.hmac(salted_password, b"Server Key"), iterations)

    def to_value(self) -> dict[str, object]:
        return {
            "salt": base64.b64encode(self.salt).decode(),
            "stored_key": base64.b64encode(self.stored_key).decode(),
            "server_key": base64.b64encode(self.server_key).decode(),
            "iterations": self.iterations,
        }

    @classmethod
    def from_value(cls, value: dict[str, object]) -> Credential:
        salt, stored_key, server_key = (
            base64.b64decode(str(value[key])) for key in ("salt", "stored_key", "server_key")
        )
        return cls(salt, stored_key, server_key, int(str(value["iterations"])))


class Decoy(NamedTuple):
    """What the credentials of unknown users are made from. `salt_bytes` and `iterations` are as those of real users."""

    seed: bytes
    salt_bytes: int = SALT_BYTES
    iterations: int = MIN_ITERATIONS

    def credential(self, mechanism: Mechanism, user: str) -> Credential:
        """Return a credential that no password fits."""
        secret = hmac.digest(self.seed, f"{mechanism.wire_name},{user}".encode(), "sha256")
        return Credential(hashlib.shake_256(secret).digest(self.salt_bytes), b"", b"", self.iterations)


def salted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. This is slow on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


Find = Callable[[str, Mechanism], Credential | None]


class ScramExchange:
    """One login. Its nonce is new, so a recorded login cannot be replayed."""

    def __init__(self, mechanism: Mechanism, find: Find, decoy: Decoy) -> None:
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._find = find
        self._decoy = decoy
        self._nonce = ""
        self._doubled_nonce = ""
        self._user = ""
        self._header = b""
        self._transcript = ""
        self._credential: Credential | None = None
        self._is_known = False

    def respond(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise LoginError(FAILED) from None
        if self.identity is not None:
            raise LoginError(FAILED)
        return (self._begin(text) if self._credential is None else self._end(text)).encode()

    def _begin(self, text: str) -> str:
        match = _FIRST.fullmatch(text)
        if match is None or match["head"].startswith("p="):
            raise LoginError(FAILED)
        self._user = match["user"].replace("=2C", ",").replace("=3D", "=")
        if match["authzid"] and match["authzid"].replace("=2C", ",").replace("=3D", "=") != self._user:
            raise LoginError(FAILED)
        found = self._find(self._user, self._mechanism)
        self._is_known = found is not None
        self._credential = found or self._decoy.credential(self._mechanism, self._user)
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        self._doubled_nonce = match["nonce"] + self._nonce
        self._header = text[: match.start("bare")].encode()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._transcript = f"{match['bare']},{answer}"
        return answer

    def _end(self, text: str) -> str:
        match = _FINAL.fullmatch(text)
        credential = self._credential
        if match is None or credential is None:
            raise LoginError(FAILED)
        try:
            channel = base64.b64decode(match["channel"], validate=True)
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise LoginError(FAILED) from None
        if channel != self._header or not self._is_own(match["nonce"]):
            raise LoginError(FAILED)
        signed = f"{self._transcript},{match['bare']}".encode()
        signature = self._mechanism.hmac(credential.stored_key, signed)
        if len(proof) != len(signature):
            raise LoginError(FAILED)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(self._mechanism.hash(client_key), credential.stored_key)
        if not (is_right and self._is_known):
            raise LoginError(FAILED)
        self.identity = Identity(self._user)
        return "v=" + base64.b64encode(self._mechanism.hmac(credential.server_key, signed)).decode()

    def _is_own(self, nonce: str) -> bool:
        """Whether a client repeats the nonce of this login. librdkafka before 2.6.1 puts its part before it twice."""
        expected = self._nonce if len(nonce) == len(self._nonce) else self._doubled_nonce
        return hmac.compare_digest(nonce.encode(), expected.encode())


class ScramLogin:
    """The client's side, for connections between brokers, for tools and for Spark's executors."""

    def __init__(self, mechanism: Mechanism, user: str, password: str, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Return the proof. Raises LoginError if the broker's message is not acceptable."""
        match = _CHALLENGE.fullmatch(challenge)
        if match is None or not MIN_ITERATIONS <= int(match["iterations"]) <= MAX_CLIENT_ITERATIONS:
            raise LoginError("the broker's message in the SCRAM login is not valid")
        nonce = match["nonce"].decode()
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginError("the broker's message in the SCRAM login is not valid")
        try:
            salt = base64.b64decode(match["salt"], validate=True)
        except binascii.Error:
            raise LoginError("the broker's message in the SCRAM login is not valid") from None
        salted_password = salted(self._mechanism, self._password, salt, int(match["iterations"]))
        bare = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{bare}".encode()
        client_key = self._mechanism.hmac(salted_password, b"Client Key")
        signature = self._mechanism.hmac(self._mechanism.hash(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = self._mechanism.hmac(salted_password, b"Server Key")
        self._server_signature = self._mechanism.hmac(server_key, signed)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, last: bytes) -> None:
        """Check that the broker knows the password, too. Raises LoginError."""
        expected = b"v=" + base64.b64encode(self._server_signature)
        if not hmac.compare_digest(last, expected):
            raise LoginError("the broker does not know the password: it may be an impostor")
