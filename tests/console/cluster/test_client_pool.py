"""Requests to the cluster: in which threads they run, and how many may wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from skylog.console.cluster import client_pool as module
from skylog.console.cluster.client_pool import ClientPool, Clients, TooBusyError
from skylog.console.server.page import status_of
from skylog.errors import ConfigError
from skylog.testing import wait_until

UNREACHABLE = "127.0.0.1:1"


def test_monitoring_does_not_wait_for_pages_and_too_many_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 4)
    go_on = threading.Event()

    def wait(_: Clients) -> bool:
        return go_on.wait(20)

    async def run() -> None:
        cluster = ClientPool(UNREACHABLE)
        pages = [asyncio.create_task(cluster.run(wait)) for _ in range(module.THREADS + 4)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(cluster.run_monitoring(lambda _: "seen"), 10) == "seen"
        with pytest.raises(TooBusyError, match="12 requests") as caught:
            await cluster.run(wait)
        assert status_of(caught.value) == 503
        go_on.set()
        assert all(await asyncio.gather(*pages))
        assert await cluster.run(lambda _: "again") == "again"
        cluster.close()

    asyncio.run(run())


def test_a_cancelled_request_is_not_pending_after_it_has_run() -> None:
    async def run() -> None:
        cluster = ClientPool(UNREACHABLE)
        go_on = threading.Event()
        page = asyncio.create_task(cluster.run(lambda _: go_on.wait(20)))
        await asyncio.sleep(0)
        page.cancel()
        await asyncio.gather(page, return_exceptions=True)
        go_on.set()
        await asyncio.to_thread(wait_until, lambda: not cluster._pending, "the end of the cancelled request")
        cluster.close()

    asyncio.run(run())


def test_options_reach_the_connections_of_pages_and_readers() -> None:
    cluster = ClientPool(UNREACHABLE, {"security.protocol": "nonsense"})
    with pytest.raises(ConfigError, match=r"librdkafka refuses the configuration.*security\.protocol"):
        cluster.connection().admin_client()
    cluster.close()
