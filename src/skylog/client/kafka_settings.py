"""Client settings with Kafka's Java names, as librdkafka understands them.

A file such as Kafka's tools use (`client.properties`) configures every client of skylog: by the environment variable
SKYLOG_CONFIG, and by `--config` on the command line. Settings with librdkafka's names work as well.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylog.config import read_properties
from skylog.errors import ConfigError

CONFIG_VARIABLE: Final = "SKYLOG_CONFIG"
_RENAMED: Final = {
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.location": "ssl.ca.location",
}
_PEM: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_DROPPED: Final = ("ssl.truststore.type", "ssl.keystore.type")
_MISSED: Final = ("security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.location")
"""Without one of these a connection fails in a way that does not show its misspelled name."""
_REFUSED: Final = ("security.", "sasl.", "ssl.")
"""Other names that begin in this way are refused by librdkafka if it does not know them."""
_OF_BROKERS: Final = "listeners"
_JAAS: Final = "sasl.jaas.config"
_HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"
_KEYSTORE: Final = "ssl.keystore.location"
_PASSWORD_OF_KEYSTORE: Final = "ssl.keystore.password"


def isolation(read_committed: bool) -> dict[str, object]:
    """Return the setting of a consumer that reads committed messages only, or all."""
    return {"isolation.level": "read_committed" if read_committed else "read_uncommitted"}


def as_librdkafka(config: Mapping[str, object]) -> dict[str, object]:
    """Return settings with librdkafka's names. Raises ConfigError for what librdkafka cannot do."""
    found: dict[str, object] = {}
    for key, value in config.items():
        if key == _OF_BROKERS:
            raise ConfigError(f"'{key}' is a setting of brokers: give the settings of a client, see docs/security.md")
        if key in _DROPPED:
            if str(value).upper() != "PEM":
                raise ConfigError(f"{key}={value} is not supported: convert the store to PEM")
        elif key == _JAAS:
            found |= _logins(str(value))
        elif key in _PEM:
            found[_PEM[key]] = _pem(key, str(value))
        elif key == _KEYSTORE:  # one PEM file with the key and its certificates
            found["ssl.certificate.location"] = found["ssl.key.location"] = value
        elif key == _HOST_CHECK:
            found[key] = str(value) or "none"
        elif key != _PASSWORD_OF_KEYSTORE:
            found[_RENAMED.get(key, key)] = value
    return found


def _pem(key: str, text: str) -> str:
    """Return PEM in several lines, which librdkafka needs. Java accepts it in one."""
    from skylog.net.tls import normal_pem

    try:
        return normal_pem(text)
    except ValueError as error:  # it does not have the text, which may be a key
        raise ConfigError(f"{key}: {error}") from error


def _logins(jaas: str) -> dict[str, object]:
    from skylog.security.jaas import parse_jaas

    options = parse_jaas(jaas)
    if "username" not in options:
        return {}
    return {"sasl.username": options["username"], "sasl.password": options.get("password", "")}


def read_client_config(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read a properties file, and return its settings with librdkafka's names. Raises ConfigError."""
    return as_librdkafka(_read(path))


def _read(path: str | os.PathLike[str]) -> dict[str, str]:
    try:
        return read_properties(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the client settings {path}: {error}") from error


def properties_of_environment() -> dict[str, str]:
    """Return the settings in the file that SKYLOG_CONFIG names, as they are; none without it. Raises ConfigError."""
    path = os.environ.get(CONFIG_VARIABLE)
    found = _read(path) if path else {}
    for key in found:
        if not key.startswith(_REFUSED) and (close := difflib.get_close_matches(key, _MISSED, n=1, cutoff=0.85)):
            raise ConfigError(f"unknown setting '{key}' in {path}; did you mean '{close[0]}'?")
    return found


def configured_by_environment() -> dict[str, object]:
    """Return the settings in the file that SKYLOG_CONFIG names, with librdkafka's names. Raises ConfigError."""
    return as_librdkafka(properties_of_environment())
