"""`skylog mirror` of a cluster with TLS and logins. The login stays with the brokers."""

from __future__ import annotations

from pathlib import Path

from skylog.client import Admin
from skylog.client.kafka_settings import read_client_config
from skylog.testing import BrokerProcess, wait_until

from .commands import run_skylog
from .conftest import Skylog


def west_config(folder: Path, bootstrap: str) -> Path:
    """Write the settings of a client of west, which `skylog secure` has made for another port."""
    path = folder / "west.properties"
    text = (folder / "secrets" / "client.properties").read_text()
    path.write_text(text.replace("bootstrap.servers=127.0.0.1:9092", f"bootstrap.servers={bootstrap}"))
    return path


def test_a_secured_source_is_mirrored_and_its_login_never_shown(tmp_path: Path) -> None:
    made = run_skylog("secure", tmp_path / "secrets")
    assert made.returncode == 0, made.stderr
    options = ["--config", str(tmp_path / "secrets" / "server.properties")]
    with BrokerProcess(options=options) as west, BrokerProcess(options=["--log-level", "debug"]) as target:
        config, east = west_config(tmp_path, west.bootstrap), Skylog(target.bootstrap)
        given = {key: str(value) for key, value in read_client_config(config).items()}
        sent = run_skylog("produce", "clicks", stdin=b"a\nb\n", variables={"SKYLOG_CONFIG": str(config)})
        assert sent.returncode == 0, sent.stderr

        create = ["mirror", "create", "west", "--from", west.bootstrap, "--topics", "clicks", "--source-config"]
        wrong = tmp_path / "wrong.properties"
        wrong.write_text(config.read_text().replace(given["sasl.password"], "not-the-password"))
        refused = east(*create, wrong, code=1).stderr
        assert "not-the-password" not in refused
        assert "credentials" in refused.lower() or "authentication" in refused.lower(), refused

        east(*create, config)
        config.unlink()  # the broker has what it needs
        wait_until(lambda: "clicks" in east.topics() and len(east.read("clicks")) == 2, "the mirror")
        target.restart()
        wait_until(lambda: east.json("mirror", "list", "--json")[0]["status"] == "mirroring", "the mirror to go on")
        shown = [
            east("mirror", "list", "--json").stdout,
            east("mirror", "describe", "west", "--json").stdout,
            east("mirror", "describe", "west").stdout,
            str(Admin(east.bootstrap).describe_configs("clicks")),
            str(Admin(east.bootstrap).describe_broker_configs()),
            target.stderr(),
        ]
        assert "clicks" in shown[1]
        for text in shown:
            assert given["sasl.password"] not in text
            assert "PRIVATE KEY" not in text
            assert "not-the-password" not in text
        assert given["sasl.password"] in (target.data_dir / "metadata.json").read_text()  # what is looked for is right
