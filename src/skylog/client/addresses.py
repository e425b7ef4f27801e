"""Addresses of brokers, as users write them."""

from __future__ import annotations

import re
from typing import Final

from skylog.errors import ConfigError

_HOST: Final = r"\[[^\]/\s]+\]|[0-9a-f:]*::[0-9a-f:]*|[^/\[\]\s:]+"
_ADDRESS: Final = re.compile(
    rf"(?:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?P<host>{_HOST})(?::(?P<port>[0-9]{{1,5}}))?", re.IGNORECASE
)
_MAX_PORT: Final = 65_535
DEFAULT_PORT: Final = 9092


def check_addresses(bootstrap: str) -> None:
    """Raise ConfigError for an address that is none: librdkafka would ignore it, or connect to another port."""
    for address in filter(None, map(str.strip, bootstrap.split(","))):
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found["port"] or 0) > _MAX_PORT:
            raise ConfigError(f"'{address}' is not the address of a broker: expected HOST:PORT, such as 127.0.0.1:9092")


def split_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Return hosts and ports of addresses that `check_addresses` has accepted."""
    matches = (_ADDRESS.fullmatch(address) for address in filter(None, map(str.strip, bootstrap.split(","))))
    return [(match["host"].strip("[]"), int(match["port"] or DEFAULT_PORT)) for match in matches if match is not None]
