"""`/alerts` as HTML and as JSON, with what the monitoring job has published."""

from __future__ import annotations

import time
from typing import Any

import orjson

from skylog.alert import ALERTS_TOPIC
from skylog.client import Admin, Producer
from skylog.testing import BrokerProcess, wait_until
from tests.console.conftest import running_console

HOSTILE = "<script>alert(1)</script>"
DAY_MS = 86_400_000


def test_alerts_are_shown_raised_ones_first() -> None:
    with BrokerProcess() as broker, running_console(broker) as console:
        assert console.json("/alerts")["exists"] is False
        assert "Nothing watches the brokers yet" in console.get("/alerts").text
        Admin(broker.bootstrap).create_topic(ALERTS_TOPIC, 1, configs={"cleanup.policy": "compact"})
        now_ms = time.time_ns() // 1_000_000
        alert = {"name": "disk fills up", "state": "raised", "node_id": 1, "since_ms": now_ms, "at_ms": now_ms}
        odd = {**alert, "at_ms": 10**18}
        with Producer(broker.bootstrap) as producer:
            for key, value in (
                ("a", {**alert, "state": "cleared"}),
                ("b", {**alert, "measured": 0.05, "condition": HOSTILE, "labels": {"topic": HOSTILE}}),
                ("c", {**alert, "state": "cleared", "at_ms": now_ms - DAY_MS - 1}),
                ("d", alert),
                ("odd", odd),
                ("no alert", b"\xff"),
            ):
                producer.send(ALERTS_TOPIC, value if isinstance(value, bytes) else orjson.dumps(value), key)
            producer.send(ALERTS_TOPIC, None, "d")

        def found() -> Any:
            page: Any = console.json("/alerts")
            return page if [each["state"] for each in page["alerts"]] == ["raised", "cleared"] else None

        page = wait_until(found, "the alerts")
        assert (page["raised"], page["exists"], page["problem"]) == (1, True, None)
        assert (page["alerts"][0]["measured"], page["alerts"][0]["labels"]) == (0.05, {"topic": HOSTILE})
        html = console.get("/alerts").text
        assert '<span class="tag bad">raised</span>' in html
        assert "&lt;script&gt;" in html
        assert HOSTILE not in html
