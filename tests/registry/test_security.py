"""Who may use a registry: users, tokens, read-only, foreign hosts and origins."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from skylog.testing import BrokerProcess, wait_until
from tests.cli.commands import run_skylog
from tests.registry.registry_process import AVRO_INT, Api, RegistryProcess, running_registry, wait_for_writer

LOGIN = ("ada", "pass: word")
TOPIC = ("--topic", "_schemas_of_users")


@pytest.fixture(scope="module")
def locked(broker: BrokerProcess) -> Iterator[RegistryProcess]:
    options = ("--user", LOGIN[0], "--password", LOGIN[1], "--token", "correct-horse")
    with running_registry(broker.bootstrap, *TOPIC, *options) as registry:
        wait_for_writer(Api(registry.url, auth=LOGIN))
        yield registry


@pytest.fixture(scope="module")
def second(broker: BrokerProcess, locked: RegistryProcess) -> Iterator[RegistryProcess]:
    """Does not write: it forwards, with the credentials of the client."""
    with running_registry(broker.bootstrap, *TOPIC, "--user", LOGIN[0], "--password", LOGIN[1]) as registry:
        yield registry


@pytest.fixture(scope="module")
def read_only(broker: BrokerProcess, locked: RegistryProcess) -> Iterator[RegistryProcess]:
    with running_registry(broker.bootstrap, *TOPIC, "--read-only") as registry:
        yield registry


def test_a_registry_with_users_refuses_others(locked: RegistryProcess) -> None:
    assert Api(locked.url).fails("GET", "/subjects") == 401
    assert Api(locked.url, auth=("ada", "wrong")).fails("GET", "/subjects") == 401
    assert Api(locked.url).fails("POST", "/subjects/s/versions", {"schema": AVRO_INT}) == 401
    assert Api(locked.url, auth=LOGIN).get("/subjects") is not None
    assert Api(locked.url, headers={"authorization": "Bearer correct-horse"}).get("/subjects") is not None
    assert Api(locked.url).client.get("/health").status_code == 200


def test_a_forwarded_change_has_the_credentials_of_its_client(second: RegistryProcess) -> None:
    api = Api(second.url, auth=LOGIN)
    assert not api.is_writer
    assert api.register("forwarded") > 0


def test_a_read_only_registry_answers_but_changes_nothing(locked: RegistryProcess, read_only: RegistryProcess) -> None:
    Api(locked.url, auth=LOGIN).register("shared")
    api = Api(read_only.url)
    assert api.get("/subjects/shared/versions") == [1]
    assert api.post("/subjects/shared", {"schema": AVRO_INT})["version"] == 1
    assert api.post("/compatibility/subjects/shared/versions", {"schema": AVRO_INT})["is_compatible"]
    assert api.fails("POST", "/subjects/shared/versions", {"schema": '"int"'}) == 403
    assert api.fails("DELETE", "/subjects/shared") == 403
    assert api.fails("PUT", "/config", {"compatibility": "NONE"}) == 403


def test_a_read_only_registry_is_never_elected(broker: BrokerProcess) -> None:
    topic = ("--topic", "_schemas_read_only")
    with running_registry(broker.bootstrap, *topic, "--read-only") as first:
        assert Api(first.url).get("/subjects") == []
        with running_registry(broker.bootstrap, *topic) as second:
            assert Api(second.url).register("s") == 1
            assert not Api(first.url).is_writer
            wait_until(lambda: Api(first.url).get("/subjects") == ["s"], "the schema")


def test_a_registry_beside_a_broker_has_the_same_options() -> None:
    options = ["--registry-port", "0", "--registry-token", "correct-horse", "--registry-read-only"]
    with BrokerProcess(console=True, options=options) as broker:
        [url] = re.findall(r"^registry at (http://\S+)$", broker.stderr(), re.MULTILINE)
        api = Api(url, headers={"authorization": "Bearer correct-horse"})
        assert Api(url).fails("GET", "/subjects") == 401
        assert api.get("/subjects") == []
        assert api.fails("POST", "/subjects/s/versions", {"schema": AVRO_INT}) == 403
        shown = httpx.get(f"{broker.console_url}/schemas.json", timeout=60).json()
        assert shown["subjects"] == [], shown


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
    ],
)
def test_other_sites_get_nothing(api: Api, headers: dict[str, str], status: int) -> None:
    assert api.client.put("/config", json={"compatibility": "NONE"}, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("options", "word"),
    [(["--host", "0.0.0.0"], "--token"), (["--user", "ada"], "--password")],
)
def test_unsafe_options_are_refused(options: list[str], word: str) -> None:
    result = run_skylog("registry", "--bootstrap", "127.0.0.1:1", "--port", "0", *options)
    assert result.returncode != 0
    assert word in result.stderr
