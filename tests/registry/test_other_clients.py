"""Registry clients of other languages: KafkaJS's, from npm.

Java's client (io.confluent) is not tested: its jars are not on Maven Central.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.clients.peers.installation import NotAvailable, node_modules
from tests.registry.registry_process import Api, RegistryProcess

NODE = Path(__file__).parent / "node"


def test_kafkajs_registers_encodes_and_decodes(registry: RegistryProcess, api: Api, subject: str) -> None:
    try:
        modules = node_modules(NODE, "kafkajs-registry")
    except NotAvailable as reason:
        pytest.skip(f"KafkaJS's registry client: {reason}")
    command = ["node", str(NODE / "round_trip.cjs"), registry.url, subject]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "NODE_PATH": str(modules)}
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    for kind in ("AVRO", "JSON", "PROTOBUF"):
        assert found[kind] == {
            "same": True,
            "latest": True,
            "byVersion": True,
            "bySchema": True,
            "frame": [0, True],
            "decoded": {"a": 7},
        }
    assert "not found" in found["error"]
    assert api.get(f"/config/{subject}-AVRO") == {"compatibilityLevel": "FULL"}
