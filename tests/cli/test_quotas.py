"""`skylog quotas`: set, list and remove, through a broker and before its first start."""

from __future__ import annotations

import json
from pathlib import Path

from skylog.testing import BrokerProcess

from .commands import run_skylog as skylog


def test_quotas_are_set_listed_and_removed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:

        def quotas(*arguments: str) -> str:
            done = skylog("quotas", *arguments, "--bootstrap", broker.bootstrap)
            assert done.returncode == 0, done.stderr
            return done.stdout + done.stderr

        assert "there are no quotas" in quotas("list")
        assert "producer_byte_rate=1048576" in quotas("set", "--user", "alice", "--producer-byte-rate", "1MiB")
        quotas("set", "--user", "alice", "--default", "client-id", "--request-percentage", "12.5")
        assert json.loads(quotas("list", "--json")) == [
            {"entity": {"user": "alice", "client-id": None}, "quotas": {"request_percentage": 12.5}},
            {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1048576.0}},
        ]
        assert "(default)" in quotas("list")
        assert "removed for user alice: producer_byte_rate" in quotas("remove", "producer-byte-rate", "--user", "alice")
        done = skylog("quotas", "remove", "--user", "alice", "--bootstrap", broker.bootstrap)
        assert done.returncode == 1
        assert "skylog quotas list" in done.stderr


def test_quotas_are_set_before_the_first_start(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    assert (
        skylog("quotas", "set", "--ip", "::1", "--connection-creation-rate", "5", "--data-dir", data_dir).returncode
        == 0
    )
    done = skylog("quotas", "list", "--json", "--data-dir", data_dir)
    assert json.loads(done.stdout) == [{"entity": {"ip": "::1"}, "quotas": {"connection_creation_rate": 5.0}}]
    assert skylog("quotas", "remove", "--ip", "::1", "--data-dir", data_dir).returncode == 0
    assert json.loads(skylog("quotas", "list", "--json", "--data-dir", data_dir).stdout) == []


def test_errors_name_the_fix(tmp_path: Path) -> None:
    for arguments, said in (
        (["set", "--producer-byte-rate", "1MiB"], "--user NAME"),
        (["set", "--user", "alice"], "--producer-byte-rate 1MiB"),
        (["set", "--user", "alice", "--producer-byte-rate", "fast"], "such as 1000000, 500kB or 1MiB"),
        (["set", "--user", "alice", "--connection-creation-rate", "5"], "producer_byte_rate"),
        (["remove", "speed", "--user", "alice"], "producer-byte-rate"),
    ):
        done = skylog("quotas", *arguments, "--data-dir", str(tmp_path / "data"))
        assert done.returncode == 1
        assert said in done.stderr
