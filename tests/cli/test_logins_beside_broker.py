"""The console and the registry beside a secured broker: users of the cluster log in, with the rights that they have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from skylog.config import read_properties
from skylog.security.jaas import parse_jaas
from skylog.testing import BrokerProcess
from tests.cli.commands import run_skylog
from tests.registry.registry_process import AVRO_INT, Api
from tests.secured_cluster import SecuredCluster, secured_cluster

PASSWORD = "secret of a user"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    options = ("--console", "--console-port", "0", "--registry-port", "0")
    with secured_cluster(tmp_path_factory.mktemp("logins"), *options) as running:
        running.user("eve")
        running.user("reader", ["read", "--topic", "_schemas"])
        running.user("writer", ["read", "write", "--topic", "_schemas"])
        running.user("operator", ["alter", "--cluster"])
        yield running


@pytest.fixture(scope="module")
def admin(cluster: SecuredCluster) -> tuple[str, str]:
    login = parse_jaas(read_properties(cluster.admin.read_text())["sasl.jaas.config"])
    return login["username"], login["password"]


@pytest.fixture(scope="module")
def console(cluster: SecuredCluster) -> Iterator[httpx.Client]:
    headers = {"accept": "application/json"}
    with httpx.Client(base_url=url(cluster, "console"), timeout=60, headers=headers) as client:
        yield client


def url(cluster: SecuredCluster, server: str) -> str:
    found = re.search(rf"^{server} at (http://\S+)$", cluster.broker.stderr(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_broker_says_who_can_log_in(cluster: SecuredCluster) -> None:
    said = cluster.broker.stderr()
    assert "log in to the console as admin, or as a user who may alter the cluster" in said
    assert "log in to the registry as admin, or as a user who has rights to the topic _schemas" in said


def test_the_console_serves_those_who_may_administer_the_cluster(console: httpx.Client, admin: tuple[str, str]) -> None:
    assert console.get("/topics").status_code == 401
    for user, password in (("operator", "wrong"), ("nobody", PASSWORD), ("", ""), ("a\nb", "c")):
        assert console.get("/topics", auth=(user, password)).status_code == 401
    refused = console.get("/topics", auth=("writer", PASSWORD))
    assert refused.status_code == 403
    assert "skylog acls add writer alter --cluster" in refused.json()["error"]
    for login in (admin, ("operator", PASSWORD)):
        assert "topics" in console.get("/topics", auth=login).json()
    assert console.get("/schemas", auth=admin).json()["subjects"] == []  # the console logs in to the registry
    assert console.get("/health").json() == {"healthy": True}


def test_a_browser_has_a_session_until_it_logs_out(cluster: SecuredCluster) -> None:
    with httpx.Client(base_url=url(cluster, "console"), timeout=60, headers={"accept": "text/html"}) as browser:
        assert browser.get("/topics").headers["location"] == "/login?next=%2Ftopics"
        assert "As a user of the cluster" in browser.get("/login").text
        refused = browser.post("/login", data={"user": "writer", "password": PASSWORD})
        assert (refused.status_code, "writer may not use this console" in refused.text) == (403, True)
        assert browser.post("/login", data={"user": "operator", "password": "wrong"}).status_code == 401
        assert browser.get("/topics").status_code == 303
        assert browser.post("/login", data={"user": "operator", "password": PASSWORD}).status_code == 303
        assert browser.get("/topics").status_code == 200
        cookie = browser.cookies["skylog_session"]
        assert PASSWORD not in cookie
        assert browser.post("/logout").status_code == 303
        browser.cookies.set("skylog_session", cookie)
        assert browser.get("/topics").status_code == 303


def test_the_registry_serves_those_with_rights_to_its_topic(cluster: SecuredCluster, admin: tuple[str, str]) -> None:
    address = url(cluster, "registry")
    nobody, eve, reader, writer, first = (
        Api(address, auth=login)
        for login in (None, ("eve", PASSWORD), ("reader", PASSWORD), ("writer", PASSWORD), admin)
    )
    assert nobody.fails("GET", "/subjects") == Api(address, auth=("eve", "wrong")).fails("GET", "/subjects") == 401
    assert eve.fails("GET", "/subjects") == 403
    assert first.register("s", AVRO_INT) == writer.register("t", AVRO_INT) == 1
    assert reader.get("/subjects") == ["s", "t"]
    assert reader.post("/subjects/s", {"schema": AVRO_INT})["id"] == 1
    for method, path in (("POST", "/subjects/s/versions"), ("DELETE", "/subjects/s"), ("PUT", "/config")):
        assert reader.fails(method, path, {"schema": AVRO_INT}) == 403
    assert writer.delete("/subjects/t") == [1]


def test_the_command_line_logs_in_to_the_registry_if_it_may(cluster: SecuredCluster) -> None:
    address = ("--registry", url(cluster, "registry"), "--config", str(cluster.admin))
    assert run_skylog("schemas", "list", *address).returncode == 1
    setting = "basic.auth.credentials.source=SASL_INHERIT"
    listed = run_skylog("schemas", "list", "--json", *address, "--set", setting)
    assert listed.returncode == 0, listed.stderr
    without = run_skylog("schemas", "list", "--registry", url(cluster, "registry"), "--set", setting)
    assert (without.returncode, "needs a login" in without.stderr) == (1, True)


def test_a_broker_that_asks_for_certificates_only_says_that_its_console_is_open(tmp_path: Path) -> None:
    assert run_skylog("secure", tmp_path / "secrets").returncode == 0
    settings = (tmp_path / "secrets" / "server.properties").read_text().replace("SASL_SSL://", "SSL://")
    kept = [line for line in settings.splitlines() if line.startswith(("listeners", "ssl."))]
    config = tmp_path / "server.properties"
    config.write_text("\n".join(kept))
    with BrokerProcess(console=True, options=["--config", str(config)]) as broker:
        assert "the console asks for no login: everybody on this machine has its rights" in broker.stderr()
