"""`/health` of a console that stands beside no broker: what the last look has seen."""

from __future__ import annotations

import httpx

from skylog.testing import BrokerProcess, wait_until
from tests.console.conftest import RunningConsole, running_console


def metadata_requests(broker_console: RunningConsole) -> float:
    text = broker_console.get("/metrics").text
    rows = [row for row in text.splitlines() if row.startswith("kafka_network_requestmetrics_requests_total")]
    return sum(float(row.split()[-1]) for row in rows if '"Metadata"' in row)


def test_it_tells_of_a_cluster_that_has_gone() -> None:
    with BrokerProcess() as broker, running_console(broker) as console:
        assert console.get("/health").json() == {"healthy": True, "problems": []}
        broker.kill()
        wait_until(lambda: console.get("/health").status_code == 503, "the next look", 60)
        document = console.get("/health").json()
        assert document["healthy"] is False
        assert "no broker can be reached" in document["problems"][0]


def test_probes_ask_the_cluster_nothing() -> None:
    with (
        BrokerProcess(console=True) as broker,
        running_console(broker) as console,
        httpx.Client(base_url=broker.console_url, timeout=30) as client,
    ):
        beside = RunningConsole(broker.console_url, client, broker, console.process)
        before = metadata_requests(beside)
        for _ in range(100):
            assert console.get("/health").status_code == 200
        assert metadata_requests(beside) - before < 50, "two consoles look, but not a hundred times"
