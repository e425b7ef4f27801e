"""Translates `kafka.*` options, which use the names of Kafka's Java clients, to librdkafka's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from skylog.spark.errors import OptionError

_RENAMED: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_LOGIN: Final = re.compile(r"""\b(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


def is_read_committed(kafka: Mapping[str, str]) -> bool:
    return kafka.get("isolation.level", "read_uncommitted").lower() == "read_committed"


def library_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for librdkafka. Raises OptionError for a Java key store, which it cannot open."""
    found: dict[str, str] = {}
    for key, value in kafka.items():
        if key.endswith("store.type") and key.startswith("ssl."):
            if value.upper() == "JKS":
                raise OptionError(f"option kafka.{key}=JKS: use PEM files instead; Java's clients accept them too")
        elif key == "sasl.jaas.config":
            found |= _login(value)
        elif key == "ssl.keystore.location" and kafka.get("ssl.keystore.type", "").upper() == "PEM":
            found |= {"ssl.certificate.location": value, "ssl.key.location": value}  # Java has both in one file
        else:
            found[_RENAMED.get(key, key)] = value
    return found


def _login(jaas: str) -> dict[str, str]:
    login = {name: next(filter(None, quoted), "") for name, *quoted in _LOGIN.findall(jaas)}
    if login.keys() != {"username", "password"}:
        raise OptionError("option kafka.sasl.jaas.config: expected a login module with username and password")
    return {f"sasl.{name}": value for name, value in login.items()}
