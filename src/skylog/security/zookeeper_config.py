"""Settings of the connection to ZooKeeper: TLS, the login, and who may use what brokers store. Kafka's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skylog.config import setting
from skylog.errors import ConfigError
from skylog.security.jaas import check_jaas, parse_jaas

_HOST_NAME: Final = "HTTPS"


def _check_identification(text: str) -> str | None:
    return None if text.upper() in (_HOST_NAME, "") else f"expected {_HOST_NAME}, or nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """How brokers connect to ZooKeeper. Kafka reads the login from a JAAS file; here it is a setting."""

    zookeeper_client_cnxn_socket: str = setting(
        "zookeeper.clientCnxnSocket",
        "",
        "Kafka needs it for TLS. Here it has no effect.",
    )
    zookeeper_sasl_jaas_config: str = setting(
        "zookeeper.sasl.jaas.config",
        "",
        "The login at ZooKeeper (SASL DIGEST-MD5): org.apache.zookeeper.server.auth.DigestLoginModule required "
        'username="…" password="…";. Empty: none.',
        kind="password",
        check=check_jaas,
    )
    zookeeper_set_acl: bool = setting(
        "zookeeper.set.acl",
        False,
        "Whether only the user that the brokers log in as may read and change what they store in ZooKeeper.",
    )
    zookeeper_ssl_client_enable: bool = setting(
        "zookeeper.ssl.client.enable", False, "Whether connections to ZooKeeper use TLS."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _HOST_NAME,
        "HTTPS: the certificate of a ZooKeeper server must have its host name. Empty: that is not checked.",
        check=_check_identification,
    )
    zookeeper_ssl_keystore_location: str = setting(
        "zookeeper.ssl.keystore.location",
        "",
        "A PEM file with the key and the certificates that the broker presents to ZooKeeper.",
    )
    zookeeper_ssl_keystore_password: str = setting(
        "zookeeper.ssl.keystore.password", "", "The password of the key, if it is encrypted.", kind="password"
    )
    zookeeper_ssl_keystore_type: str = setting(
        "zookeeper.ssl.keystore.type", "PEM", "Java's formats are not supported.", choices=("PEM",)
    )
    zookeeper_ssl_truststore_location: str = setting(
        "zookeeper.ssl.truststore.location",
        "",
        "A PEM file with the certificates that sign those of ZooKeeper. Empty: those of the operating system.",
    )
    zookeeper_ssl_truststore_type: str = setting(
        "zookeeper.ssl.truststore.type", "PEM", "Java's formats are not supported.", choices=("PEM",)
    )

    def login(self) -> tuple[str, str]:
        """Return user and password, both empty without a login. Raises ConfigError."""
        if not self.zookeeper_sasl_jaas_config:
            return "", ""
        options = parse_jaas(self.zookeeper_sasl_jaas_config)
        try:
            return options["username"], options["password"]
        except KeyError as missing:
            raise ConfigError(f"zookeeper.sasl.jaas.config needs {missing.args[0]}") from None
