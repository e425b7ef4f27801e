"""`/health` of a console without a parent broker: the result of the last snapshot."""

from __future__ import annotations

import httpx

from skylog.testing import BrokerProcess, wait_until
from tests.console.conftest import RunningConsole, running_console


def metadata_requests(broker_console: RunningConsole) -> float:
    text = broker_console.get("/metrics").text
    rows = [row for row in text.splitlines() if row.startswith("kafka_network_requestmetrics_requests_total")]
    return sum(float(row.split()[-1]) for row in rows if '"Metadata"' in row)


def test_a_cluster_that_has_stopped_is_unhealthy() -> None:
    with BrokerProcess() as broker, running_console(broker) as console:
        assert console.get("/health").json() == {"healthy": True, "problems": []}
        assert console.json("/cluster")["problem"] is None
        broker.kill()
        wait_until(lambda: console.get("/health").status_code == 503, "the next snapshot", 60)
        document = console.get("/health").json()
        assert document["healthy"] is False
        assert "no broker can be reached" in document["problems"][0]
        page = console.get("/groups", headers={"accept": "text/html"}).text
        assert "no broker can be reached" in page
        assert "; the figures are of <time" in page
        wait_until(lambda: console.json("/cluster")["problem"], "the next description", 60)
        assert '<span class="tag good">OK</span>' not in console.get("/cluster", headers={"accept": "text/html"}).text


def test_probes_send_no_requests_to_the_cluster() -> None:
    with (
        BrokerProcess(console=True) as broker,
        running_console(broker) as console,
        httpx.Client(base_url=broker.console_url, timeout=30) as client,
    ):
        beside = RunningConsole(broker.console_url, client, broker, console.process)
        before = metadata_requests(beside)
        for _ in range(100):
            assert console.get("/health").status_code == 200
        assert metadata_requests(beside) - before < 50, "two consoles take snapshots, but not a hundred"
