"""A session that is replaced after it has expired: watchers see what has changed, and only that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from skylog.cluster import EmbeddedSession, EmbeddedStore, Entry, EntryChange, MetadataStore
from skylog.cluster.renewable_session import RenewableSession

Report = Mapping[str, Entry | None]


def test_watchers_of_a_new_session_see_what_has_changed_meanwhile() -> None:
    async def run() -> None:
        store = EmbeddedStore(None)
        other = store.open_session()
        sessions: list[EmbeddedSession] = []

        async def open_session() -> MetadataStore:
            sessions.append(store.open_session())
            return sessions[-1]

        renewable = RenewableSession(open_session)
        await renewable.open()
        await other.commit([put("/t/kept"), put("/t/changed"), put("/t/gone")])
        reports: list[Report] = []
        await renewable.watch("/t/", reports.append)
        await sessions[0].expire()
        await other.commit([put("/t/changed", version=1), EntryChange("/t/gone", None, 1), put("/t/new")])
        await renewable.renew()
        assert {path: entry and entry.version for path, entry in reports[-1].items()} == {
            "/t/changed": 2,
            "/t/gone": None,
            "/t/new": 1,
        }
        await other.commit([put("/t/kept", version=1)])
        assert list(reports[-1]) == ["/t/kept"]

    asyncio.run(run())


def test_a_late_report_of_a_former_session_does_not_look_like_everything_that_exists() -> None:
    """All topics that it does not mention would be taken for deleted, and their folders removed."""

    async def run() -> None:
        store = EmbeddedStore(None)
        sessions: list[LateSession] = []

        async def open_session() -> MetadataStore:
            sessions.append(LateSession(store))
            return sessions[-1]

        renewable = RenewableSession(open_session)
        await renewable.open()
        await renewable.commit([put("/t/a"), put("/t/b")])
        reports: list[Report] = []
        await renewable.watch("/t/", reports.append)

        class SlowSession(LateSession):
            async def watch(self, prefix: str, watcher: Any) -> None:
                sessions[0].report({"/t/b": Entry({}, 7)})
                await super().watch(prefix, watcher)

        async def open_slow_session() -> MetadataStore:
            return SlowSession(store)

        renewable._open_session = open_slow_session
        await renewable.renew()
        assert [path for report in reports for path, entry in report.items() if entry is None] == []

    asyncio.run(run())


class LateSession(EmbeddedSession):
    """Can still call its watchers after it was closed."""

    def report(self, changed: Report) -> None:
        for _, watcher in self._watchers:
            watcher(changed)


def put(path: str, version: int = 0) -> EntryChange:
    return EntryChange(path, {}, version)
