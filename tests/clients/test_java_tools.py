"""Java's AclCommand and ConfigCommand, as the administrator of a secured broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from skylog.testing import BrokerProcess
from tests.proof import in_proof
from tests.spark.peers.jars import NoJarsError, kafka_jars

ALICE = ["--allow-principal", "User:alice", "--topic", "web-", "--resource-pattern-type", "prefixed"]


@in_proof
def test_the_tools_administer_rules_and_users(tmp_path: Path) -> None:
    from skylog.cli.secure import secure

    try:
        classpath = ":".join(map(str, kafka_jars()))
    except NoJarsError as reason:
        pytest.skip(str(reason))
    folder = tmp_path / "secrets"
    secure(folder, [], "127.0.0.1:0", 1)
    with BrokerProcess(tmp_path / "data", options=["--config", str(folder / "server.properties")]) as broker:

        def tool(name: str, *arguments: str) -> str:
            login = ["--bootstrap-server", broker.bootstrap, "--command-config", str(folder / "client.properties")]
            command = ["java", "-cp", classpath, f"kafka.admin.{name}", *login, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stdout

        tool("AclCommand", "--add", "--producer", *ALICE)
        tool("AclCommand", "--add", "--deny-principal", "User:bob", "--operation", "All", "--cluster")
        listed = tool("AclCommand", "--list")
        assert listed.count("principal=User:alice") == 3  # WRITE, DESCRIBE and CREATE
        assert "(principal=User:bob, host=*, operation=ALL, permissionType=DENY)" in listed
        tool("AclCommand", "--remove", "--force", "--producer", *ALICE)
        listed = tool("AclCommand", "--list")
        assert "User:alice" not in listed
        assert "User:bob" in listed
        alice = ["--entity-type", "users", "--entity-name", "alice"]
        tool("ConfigCommand", "--alter", *alice, "--add-config", "producer_byte_rate=1024")
        tool("ConfigCommand", "--alter", *alice, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
        described = tool("ConfigCommand", "--describe", *alice)
        assert "SCRAM-SHA-512=iterations=8192" in described
        assert "producer_byte_rate=1024.0" in described
        tool("ConfigCommand", "--alter", *alice, "--delete-config", "SCRAM-SHA-512")
        assert "SCRAM-SHA-512" not in tool("ConfigCommand", "--describe", *alice)
