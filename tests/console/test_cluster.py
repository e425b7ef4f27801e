"""Questions to the cluster: who waits for whom, and how many may wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from skylog.console import cluster as cluster_module
from skylog.console.cluster import Clients, Cluster, TooBusyError
from skylog.console.page import status_of
from skylog.errors import ConfigError
from skylog.testing import wait_until

NOBODY = "127.0.0.1:1"


def test_the_look_does_not_wait_for_pages_and_too_many_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "MAX_WAITING", 4)
    go_on = threading.Event()

    def wait(_: Clients) -> bool:
        return go_on.wait(20)

    async def ask() -> None:
        cluster = Cluster(NOBODY)
        pages = [asyncio.create_task(cluster.ask(wait)) for _ in range(cluster_module.THREADS + 4)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(cluster.look(lambda _: "seen"), 10) == "seen"
        with pytest.raises(TooBusyError, match="12 questions") as caught:
            await cluster.ask(wait)
        assert status_of(caught.value) == 503
        go_on.set()
        assert all(await asyncio.gather(*pages))
        assert await cluster.ask(lambda _: "again") == "again"
        cluster.close()

    asyncio.run(ask())


def test_who_goes_away_leaves_no_question_behind() -> None:
    async def ask() -> None:
        cluster = Cluster(NOBODY)
        go_on = threading.Event()
        page = asyncio.create_task(cluster.ask(lambda _: go_on.wait(20)))
        await asyncio.sleep(0)
        page.cancel()
        await asyncio.gather(page, return_exceptions=True)
        go_on.set()
        await asyncio.to_thread(wait_until, lambda: not cluster._asked, "the answer that nobody waits for")
        cluster.close()

    asyncio.run(ask())


def test_options_reach_the_connections_of_pages_and_readers() -> None:
    cluster = Cluster(NOBODY, {"security.protocol": "nonsense"})
    with pytest.raises(ConfigError, match=r"librdkafka refuses the configuration.*security\.protocol"):
        cluster.connection().admin_client()
    cluster.close()
