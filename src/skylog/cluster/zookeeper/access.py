"""How to connect to an ensemble with TLS and logins, and who may use what is stored in it."""

from __future__ import annotations

import importlib.util
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.security import CREATOR_ALL_ACL

from skylog.errors import ConfigError

_MECHANISM: Final = "DIGEST-MD5"


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """Files are PEM: `authority` has the certificates to trust, `identity` a key and its chain for mutual TLS.

    With `sets_acl`, only the user that creates a znode may read and change it.
    """

    has_tls: bool = False
    authority: str = ""
    identity: str = ""
    key_password: str = field(default="", repr=False)
    checks_host: bool = True
    user: str = ""
    password: str = field(default="", repr=False)
    sets_acl: bool = False

    def check(self) -> None:
        """Raise ConfigError, with the fix, if this cannot work."""
        if self.user and importlib.util.find_spec("puresasl") is None:
            raise ConfigError("a login at ZooKeeper requires pip install 'skylog[secure]': pure-sasl is missing")
        if self.sets_acl and not (self.user or self.identity):
            fix = "set zookeeper.sasl.jaas.config, or zookeeper.ssl.keystore.location"
            raise ConfigError(f"zookeeper.set.acl=true needs a user: {fix}")
        if self.has_tls:
            self.tls_context()

    def tls_context(self) -> ssl.SSLContext | None:
        """Read the files, and return the context of a new connection; None without TLS. Raises ConfigError."""
        if not self.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authority or None)
            context.check_hostname = self.checks_host
            if self.identity:
                context.load_cert_chain(self.identity, password=self.key_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(f"zookeeper.ssl.*: cannot read the certificates or the key: {error}") from error
        return context

    def client_options(self) -> dict[str, Any]:
        """Return the options of a KazooClient. TLS is the handler's part."""
        options: dict[str, Any] = {}
        if self.user:
            options["sasl_options"] = {"mechanism": _MECHANISM, "username": self.user, "password": self.password}
        if self.sets_acl:
            options["default_acl"] = CREATOR_ALL_ACL
        return options


PLAIN: Final = ZooKeeperAccess()
