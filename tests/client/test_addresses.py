"""Addresses of brokers."""

from __future__ import annotations

import pytest

from skylog import Producer
from skylog.client.addresses import check_addresses
from skylog.errors import ConfigError


@pytest.mark.parametrize(
    "bootstrap",
    ["127.0.0.1:9092", "localhost", "a.b_c-d:1, e:65535,", "[::1]:9092", "::1", "[fe80::1]", "sasl_ssl://kafka-1:9093"],
)
def test_addresses_that_the_clients_take(bootstrap: str) -> None:
    check_addresses(bootstrap)


@pytest.mark.parametrize(
    "address", ["http://a:9092", "a:port", "a:", ":9092", "a:65536", "a b:9092", "a:9092/x", "a:9092;b:9092"]
)
def test_an_address_that_is_none_is_named_together_with_the_form(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Producer(f"127.0.0.1:9092,{address}")
    assert str(refused.value).startswith(f"'{address}' is not the address of a broker: expected HOST:PORT")
