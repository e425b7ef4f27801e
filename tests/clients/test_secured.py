"""Java's client through TLS and logins, with the files that `skylog secure` writes, and by mutual TLS.

The same for librdkafka and aiokafka is in tests/broker/test_sasl.py and tests/broker/test_tls.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from skylog.testing import BrokerProcess
from tests.proof import in_proof
from tests.security import certificates

from .peers.installation import JAVA_VERSIONS, NotAvailable, java_classpath

PROJECT = Path(__file__).with_name("java")


def run_java(version: str, properties: Path) -> str:
    try:
        classpath = java_classpath(PROJECT, "kafka-clients", version)
    except NotAvailable as reason:
        pytest.skip(str(reason))
    command = ["java", "-cp", classpath, "Secured", str(properties), "letters"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout.strip() or done.stderr


@in_proof
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_logs_in_over_tls(version: str, tmp_path: Path) -> None:
    from skylog.cli.secure import secure

    folder = tmp_path / "secrets"
    secure(folder, [], "127.0.0.1:0", 1)
    with BrokerProcess(tmp_path / "data", options=["--config", str(folder / "server.properties")]) as broker:
        client = folder / "client.properties"
        client.write_text(client.read_text().replace("127.0.0.1:0", broker.bootstrap))
        assert run_java(version, client) == "hello"
        stranger = tmp_path / "stranger.properties"
        stranger.write_text(client.read_text().replace('username="admin"', 'username="eve"'))
        assert "SaslAuthenticationException" in run_java(version, stranger)


@in_proof
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_connects_by_mutual_tls(version: str, tmp_path: Path) -> None:
    server, own = certificates.server(), certificates.client()
    ca = certificates.write(tmp_path / "ca.pem", certificates.authority().certificate)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.write(tmp_path / "server.pem", server.key, server.certificate)),
        "ssl.truststore.location": str(ca),
        "ssl.client.auth": "required",
    }
    keystore = certificates.write(tmp_path / "client.pem", own.key, own.certificate)
    with BrokerProcess(tmp_path / "data", settings) as broker:
        lines = [f"bootstrap.servers={broker.bootstrap}", "security.protocol=SSL", "ssl.keystore.type=PEM"]
        lines += [f"ssl.keystore.location={keystore}", "ssl.truststore.type=PEM", f"ssl.truststore.location={ca}"]
        properties = certificates.write(tmp_path / "client.properties", "\n".join(lines))
        assert run_java(version, properties) == "hello"
