"""The settings of listeners."""

from __future__ import annotations

import pytest

from skylog.broker.config import ServerConfig, shown
from skylog.broker.security.secure_listener import tls_config
from skylog.errors import ConfigError
from skylog.security.listeners import Address, SecurityProtocol, parse_listeners


def test_secrets_are_not_in_the_text_of_a_configuration() -> None:
    values = {"ssl.keystore.key": "SECRET", "listener.name.a.ssl.key.password": "SECRET", "num.partitions": "2"}
    config = ServerConfig.parse(values)
    assert config.security.ssl_keystore_key == "SECRET"
    assert "SECRET" not in repr(config)
    assert "SECRET" not in repr(tls_config(config.security.of_listener("A")))


def test_listeners_have_names_hosts_and_ports() -> None:
    assert parse_listeners("INTERNAL://10.0.0.1:9092, public://[::1]:1,:7") == [
        Address("INTERNAL", "10.0.0.1", 9092),
        Address("PUBLIC", "::1", 1),
        Address("PLAINTEXT", "", 7),
    ]


@pytest.mark.parametrize("text", ["a", "A://b", "A://b:x", "A://b:70000", "A://b:1,A://c:2"])
def test_an_invalid_list_of_listeners_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^listeners="):
        ServerConfig.parse({"listeners": text})


def test_a_listener_has_the_protocol_of_its_name_or_of_the_map() -> None:
    config = ServerConfig.parse({"listener.security.protocol.map": "PUBLIC:SASL_SSL"}).security
    assert config.protocol_of("PUBLIC") is SecurityProtocol.SASL_SSL
    assert config.protocol_of("SSL") is SecurityProtocol.SSL
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        config.protocol_of("OTHER")


def test_a_key_may_be_set_for_one_listener() -> None:
    given = {"ssl.client.auth": "none", "listener.name.public.ssl.client.auth": "required"}
    config = ServerConfig.parse(given).security
    assert config.of_listener("PUBLIC").ssl_client_auth == "required"
    assert config.of_listener("INTERNAL").ssl_client_auth == "none"
    with pytest.raises(ConfigError):
        ServerConfig.parse({"listener.name.public.num.partitions": "1"})
    with pytest.raises(ConfigError, match="none, requested, required"):
        ServerConfig.parse({"listener.name.public.ssl.client.auth": "maybe"})


def test_a_listener_may_have_limits_of_connections_of_its_own() -> None:
    given = {"max.connections": "9", "listener.name.public.max.connections": "5"}
    assert ServerConfig.parse(given).net.by_listener == {("public", "max.connections"): 5}
    with pytest.raises(ConfigError, match=r"listener\.name\.public\.max\.connections=0"):
        ServerConfig.parse({"listener.name.public.max.connections": "0"})
    with pytest.raises(ConfigError):  # as in Kafka, only for the whole broker
        ServerConfig.parse({"listener.name.public.max.connections.per.ip": "5"})


def test_secrets_are_not_shown() -> None:
    values = {"ssl.keystore.key": "k", "listener.name.a.ssl.key.password": "p", "num.partitions": "2"}
    assert shown(values) == {
        "ssl.keystore.key": "[hidden]",
        "listener.name.a.ssl.key.password": "[hidden]",
        "num.partitions": "2",
    }
