"""Connections of executors: TLS, and logins with SASL. Those to Apache Kafka are in peers/test_secured_kafka.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.pipeline import Cluster
from skylog.spark.errors import OptionError
from skylog.spark.login import tokens
from skylog.spark.reading.fetcher import FetchSettings
from skylog.spark.reading.range_reader import read_batches
from skylog.spark.reading.ranges import ReadRange
from skylog.spark.schema import arrow_schema, record_schema
from skylog.spark.security import Security, needs_library
from skylog.spark.wire import UntrustedBrokerError
from skylog.spark.writing.delivery import deliver_micro_batch
from skylog.spark.writing.write_options import write_options
from tests.certificate import write_certificate
from tests.spark.tls_gateway import broker_behind_tls
from tests.spark.writing.sink_staged import stage_values

SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": 'ScramLoginModule required username="user" password="pencil";',
}


def test_a_cluster_with_tls_is_written_and_read(tmp_path: Path) -> None:
    context = write_certificate(tmp_path)
    authority = tmp_path / "ca.pem"
    for trusted in (str(authority), authority.read_text()):
        options = {"kafka.security.protocol": "SSL"}
        options["kafka.ssl.truststore." + ("location" if trusted == str(authority) else "certificates")] = trusted
        with broker_behind_tls(context) as bootstrap:
            cluster = Cluster(bootstrap, options)
            cluster.ensure_topic("secret", 1)
            written = write_options({**cluster.kafka_options, "topic": "secret"})
            directory = tmp_path / f"staged-{len(trusted)}"
            directory.mkdir()
            deliver_micro_batch(written, directory, 0, [stage_values(directory, "secret", [b"a", b"b"])])
            settings = FetchSettings(bootstrap, patience_s=10, security=written.security)
            columns = arrow_schema(record_schema(with_headers=False))
            batches = list(read_batches(settings, ReadRange(*TopicPartition("secret", 0), 0, 2), columns))
            assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"a", b"b"]
            untrusted = settings._replace(security=Security(is_encrypted=True))
            with pytest.raises(UntrustedBrokerError, match=r"certificate of 127.0.0.1:\d+ is not trusted: self-signed"):
                list(read_batches(untrusted, ReadRange(*TopicPartition("secret", 0), 0, 2), columns))


def test_a_login_with_scram_is_that_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    exchange = tokens(Security.of(SASL), nonce="rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = exchange.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert answer == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("challenge", [b"r=other,s=W22Z,i=4096", b"r=mine1,s=W22Z,i=1", b"e=unknown-user"])
def test_a_challenge_that_is_not_an_answer_is_refused(challenge: bytes) -> None:
    exchange = tokens(Security.of(SASL), nonce="mine")
    next(exchange)
    with pytest.raises(KafkaError, match="not valid"):
        exchange.send(challenge)


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    exchange = tokens(Security.of(SASL), nonce="mine")
    next(exchange)
    exchange.send(b"r=mine1,s=W22Z,i=4096")
    with pytest.raises(KafkaError, match="does not know the password"):
        exchange.send(b"v=AA==")


def test_options_describe_the_security_of_a_connection() -> None:
    found = Security.of({**SASL, "sasl.mechanism": "PLAIN", "ssl.endpoint.identification.algorithm": ""})
    assert (found.is_encrypted, found.has_host_name, found.mechanism) == (True, False, "PLAIN")
    assert next(tokens(found)) == b"\0user\0pencil"
    pem = Security.of({"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem"})
    assert (pem.certificate, pem.key) == ("me.pem", "me.pem")
    assert Security.of({}) == Security()


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "expected one of PLAIN, SCRAM-SHA-256"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "needs kafka.sasl.jaas.config"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such.pem"}, "cannot read the certificates"),
    ],
)
def test_mistakes_are_reported_before_a_task_starts(kafka: dict[str, str], problem: str) -> None:
    given = {f"kafka.{key}": value for key, value in kafka.items()}
    with pytest.raises(OptionError, match=problem):
        write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given})


def test_other_mechanisms_are_left_to_librdkafka() -> None:
    assert needs_library({**SASL, "sasl.mechanism": "OAUTHBEARER"})
    assert not needs_library(SASL)
    assert not needs_library({"security.protocol": "SSL"})
