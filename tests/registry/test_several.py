"""Several registries of one cluster: one writes, the others forward; kill -9 of writers and of the broker."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from skylog.testing import BrokerProcess
from skylog.testing.waiting import wait_until
from tests.registry.registry_process import Api, RegistryProcess, running_registry, wait_for_writer

TOPIC = "_schemas_of_several"


def enum(name: str) -> str:
    """A schema that differs from those of other names."""
    return f'{{"type":"enum","name":"E","symbols":["{name}"]}}'


@pytest.fixture(scope="module")
def own_broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


@pytest.fixture
def pair(own_broker: BrokerProcess) -> Iterator[tuple[RegistryProcess, RegistryProcess]]:
    """Two registries; the first is the one that writes."""
    with (
        running_registry(own_broker.bootstrap, "--topic", TOPIC) as one,
        running_registry(own_broker.bootstrap, "--topic", TOPIC) as two,
    ):
        writer = wait_for_writer(Api(one.url), Api(two.url))
        yield (one, two) if str(writer.client.base_url).startswith(one.url) else (two, one)


def everything(api: Api) -> Any:
    return [api.get("/schemas?deleted=true"), api.get("/config"), api.get("/mode")]


def test_concurrent_registration_gives_one_id(pair: tuple[RegistryProcess, RegistryProcess]) -> None:
    apis = [Api(each.url) for each in pair for _ in range(4)]
    with ThreadPoolExecutor(len(apis)) as threads:
        same = list(threads.map(lambda api: api.register("same", enum("SAME")), apis))
        different = list(threads.map(lambda at: apis[at % 8].register(f"own{at}", enum(f"OWN{at}")), range(24)))
    assert len(set(same)) == 1
    assert len(set(different)) == 24
    assert set(same).isdisjoint(different)
    assert everything(apis[0]) == everything(apis[-1])


def test_a_change_by_any_registry_is_seen_there_at_once(pair: tuple[RegistryProcess, RegistryProcess]) -> None:
    other = Api(pair[1].url)
    assert not other.is_writer
    schema_id = other.register("seen", enum("SEEN"))
    assert other.get(f"/schemas/ids/{schema_id}") == {"schema": enum("SEEN")}
    assert other.put("/config/seen", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert other.get("/config/seen") == {"compatibilityLevel": "NONE"}
    assert other.fails("POST", "/subjects/seen/versions", {"schema": "no"}) == 42201
    assert other.delete("/subjects/seen") == [1]
    assert other.fails("GET", "/subjects/seen/versions") == 40401
    assert "skylog_registry_forwarded_total 4" in other.client.get("/metrics").text


def test_what_one_registry_answers_the_other_knows(pair: tuple[RegistryProcess, RegistryProcess]) -> None:
    """A client gets an id from one registry, and a consumer asks another for it right away."""
    writer, other = Api(pair[0].url), Api(pair[1].url)
    for number in range(20):
        schema_id = (
            writer.register("known", enum("KNOWN"))
            if number == 0
            else writer.register(f"k{number}", enum(f"K{number}"))
        )
        assert other.get(f"/schemas/ids/{schema_id}")["schema"].startswith("{")


class Registrations:
    """Registers schemas through two registries in threads, and repeats what fails, until it is stopped."""

    def __init__(self, name: str, urls: list[str]) -> None:
        self.ids: dict[str, int] = {}
        self._name, self._stopping = name, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(at, urls[at % 2])) for at in range(4)]
        for each in self._threads:
            each.start()

    def _run(self, at: int, url: str) -> None:
        api = Api(url)
        for number in range(10_000):
            text, subject = enum(f"{self._name}{at}x{number}"), f"{self._name}-{at}-{number}"
            while not self._stopping.is_set():
                try:
                    response = api.client.post(f"/subjects/{subject}/versions", json={"schema": text}, timeout=30)
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if response.status_code == 200:
                    self.ids[text] = response.json()["id"]
                    break
                assert response.status_code >= 500, response.text
            if self._stopping.is_set():
                return

    def wait_for(self, more: int) -> None:
        wanted = len(self.ids) + more
        wait_until(lambda: len(self.ids) >= wanted, f"{more} more registrations", 120)

    def stop(self) -> dict[str, int]:
        self._stopping.set()
        for each in self._threads:
            each.join()
        return self.ids


def check_ids(api: Api, ids: dict[str, int]) -> None:
    """No id was given twice, and none that was answered is lost."""
    assert len(set(ids.values())) == len(ids)
    rows = api.get("/schemas?deleted=true")
    texts: dict[int, set[str]] = {}
    for row in rows:
        texts.setdefault(row["id"], set()).add(row["schema"])
    assert [found for found in texts.values() if len(found) > 1] == []
    assert {text: schema_id for text, schema_id in ids.items() if texts.get(schema_id) != {text}} == {}
    by_text: dict[str, set[int]] = {}
    for row in rows:
        by_text.setdefault(row["schema"], set()).add(row["id"])
    assert [text for text, found in by_text.items() if len(found) > 1] == []


def test_a_writer_is_killed_while_schemas_are_registered(pair: tuple[RegistryProcess, RegistryProcess]) -> None:
    writer, other = pair
    registering = Registrations("KILL", [other.url, writer.url])
    registering.wait_for(20)
    writer.kill()
    wait_for_writer(Api(other.url))
    registering.wait_for(10)
    writer.start()
    registering.wait_for(10)
    ids = registering.stop()
    check_ids(Api(other.url), ids)
    check_ids(Api(writer.url), ids)
    assert everything(Api(other.url)) == everything(Api(writer.url))


def test_a_writer_that_slept_is_fenced(pair: tuple[RegistryProcess, RegistryProcess]) -> None:
    writer, other = pair
    registering = Registrations("SLEEP", [other.url, writer.url])
    registering.wait_for(10)
    writer.signal(signal.SIGSTOP)
    wait_for_writer(Api(other.url))
    registering.wait_for(10)
    writer.signal(signal.SIGCONT)
    registering.wait_for(20)
    ids = registering.stop()
    check_ids(Api(other.url), ids)
    assert everything(Api(other.url)) == everything(Api(writer.url))


def test_the_broker_is_killed(own_broker: BrokerProcess, pair: tuple[RegistryProcess, RegistryProcess]) -> None:
    writer, other = pair
    registering = Registrations("BROKER", [other.url, writer.url])
    registering.wait_for(10)
    assert Api(other.url).get("/subjects")  # waits until it has read the topic
    own_broker.kill()
    assert Api(other.url).get("/subjects")  # reading needs no broker
    own_broker.start()
    registering.wait_for(10)
    ids = registering.stop()
    check_ids(Api(writer.url), ids)
    before = everything(Api(other.url))
    own_broker.restart()
    other.kill()
    other.start()
    assert everything(Api(other.url)) == before


def test_a_registry_stops_soon_though_its_broker_ended_before_it_had_read_the_topic() -> None:
    with BrokerProcess() as broker, running_registry(broker.bootstrap):
        broker.kill()
