"""TLS and a login for the ZooKeeper server that `skylog zookeeper` runs."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_JAAS: Final = "jaas.conf"
_CONFIG: Final = """\
secureClientPortAddress={host}
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={identity}
ssl.keyStore.type=PEM
ssl.trustStore.location={authority}
ssl.trustStore.type=PEM
ssl.clientAuth={client_auth}
"""
_LOGIN: Final = """\
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
"""
_ONLY_WITH_LOGIN: Final = """\
enforce.auth.enabled=true
enforce.auth.schemes=sasl
"""
_JAAS_CONFIG: Final = """\
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_{user}="{password}";
}};
"""


@dataclass(frozen=True, slots=True)
class ServerSecurity:
    """TLS with the key and certificates in `identity`, trusting those that `authority` signs. Both are PEM files.

    Clients may log in as `user`, if there is one; only those who do are served, if `needs_login`. `needs_certificate`:
    clients must present one.
    """

    identity: Path
    authority: Path
    user: str = ""
    password: str = field(default="", repr=False)
    needs_login: bool = True
    needs_certificate: bool = False

    def config(self, host: str, port: int) -> str:
        """Return the lines of zoo.cfg."""
        client_auth = "need" if self.needs_certificate else "none"
        text = _CONFIG.format(
            host=host,
            port=port,
            identity=self.identity.absolute(),
            authority=self.authority.absolute(),
            client_auth=client_auth,
        )
        if self.user:
            text += _LOGIN + (_ONLY_WITH_LOGIN if self.needs_login else "")
        return text

    def prepare(self, data_dir: Path) -> Sequence[str]:
        """Write the file with the password, and return the options of the JVM."""
        if not self.user:
            return ()
        path = data_dir / _JAAS
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_JAAS_CONFIG.format(user=self.user, password=self.password))
        return (f"-Djava.security.auth.login.config=./{_JAAS}",)

    def own_context(self) -> ssl.SSLContext:
        """Return the context with which the server is asked whether it answers: nothing secret is sent."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.identity)
        return context
