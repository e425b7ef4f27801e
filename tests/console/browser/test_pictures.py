"""The picture of the overview in the docs, of a cluster at work; with `make screenshots`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

from skylog import Admin, Consumer, Producer
from skylog.audit import AUDIT_TOPIC, ConsumerAudit, ProducerAudit
from skylog.testing import BrokerProcess
from tests.console.browser.conftest import KEEPS_IMAGES, NewPage, keep_image
from tests.console.conftest import RunningConsole

WORK_S: Final = 150  # so long that plots show something, and windows of the audit are over

pytestmark = pytest.mark.skipif(not KEEPS_IMAGES, reason="with `make screenshots`")


@contextmanager
def working(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.timeout(600)
def test_the_overview_of_a_cluster_at_work(new_page: NewPage, tmp_path: Path) -> None:
    with BrokerProcess(console=True) as broker:
        admin = Admin(broker.bootstrap)
        admin.create_topic(AUDIT_TOPIC, 1)
        admin.create_topic("events", 4)

        def produce(stop: threading.Event) -> None:
            audit = ProducerAudit("website", journal_dir=tmp_path)
            with Producer(broker.bootstrap, audit=audit) as producer:
                number = 0
                while not stop.wait(0.05):
                    for _ in range(20 + int(number / 400) % 30):
                        event = f'{{"event": "page.view", "user": {number % 90}, "page": "/posts/{number % 7}"}}'
                        producer.send("events", event, key=str(number % 90))
                        number += 1
                    producer.send("orders", f'{{"order": {number}}}', key=str(number))

        def read(group: str, pause_s: float) -> Callable[[threading.Event], None]:
            def work(stop: threading.Event) -> None:
                with Consumer("events", group, broker.bootstrap, audit=ConsumerAudit()) as consumer:
                    while not stop.is_set():
                        consumer.consume(timeout_s=0.2)
                        stop.wait(pause_s)

            return work

        with working(produce, read("newsletter", 0.01), read("search-index", 1.2)):
            page = new_page(RunningConsole(broker.console_url, None, broker, None))  # type: ignore[arg-type]
            page.goto("/")
            time.sleep(WORK_S)
            page.goto("/")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            keep_image(page, "overview")
            page.close()  # it would ask a broker that is gone
