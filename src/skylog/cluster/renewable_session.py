"""A session with the metadata store that is replaced by a new one after it has expired.

The parts of a broker hold this object, so that they need not know which session is the current one. Watchers move to
the new session, and are called with what has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from skylog.cluster.store import Entry, MetadataStore, Operation, SessionExpiredError, Watcher
from skylog.errors import SkylogError

OpenSession = Callable[[], Awaitable[MetadataStore]]


class RenewableSession:
    """A `MetadataStore`. `open` it first; `renew` it after `on_expiry` listeners were called.

    `check` raises SkylogError for a new session that must not be used: its store may have lost everything meanwhile,
    and the watchers would take that for a deletion. `is_kept` says that a listener calls `renew`. Until then, while the
    broker starts, `watch` does.
    """

    def __init__(self, open_session: OpenSession) -> None:
        self._open_session = open_session
        self._session: MetadataStore | None = None
        self.is_kept = False
        self.check: Callable[[MetadataStore], Awaitable[None]] = _accept
        self._watches: list[_Watch] = []
        self._expiry_listeners: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Open the first session. Raises SkylogError if the store cannot be reached."""
        self._use(await self._open_session())

    async def renew(self) -> None:
        """Open another session and move the watchers to it. Raises SkylogError; then call it again."""
        session = await self._open_checked()
        former, self._session = self._session, session
        if former is not None:
            with suppress(SkylogError):  # it has expired, or its end is none of our business any more
                await former.close()
        self._use(session)
        for watch in self._watches:
            watch.begin_again()
            await self._watch(session, watch)

    async def renew_until_open(self) -> None:
        """Renew it, and again if the new session expires before all watchers have moved. Raises SkylogError."""
        while True:
            try:
                await self.renew()
            except SessionExpiredError:
                continue
            return

    async def _watch(self, session: MetadataStore, watch: _Watch) -> None:
        """Pass on the reports of a session while it is the current one.

        A late report of a former one would look like the first of the new one, which has everything that exists.
        """

        def report(changed: Mapping[str, Entry | None]) -> None:
            if session is self._session:
                watch.report(changed)

        await session.watch(watch.prefix, report)

    async def _open_checked(self) -> MetadataStore:
        session = await self._open_session()
        try:
            await self.check(session)
        except BaseException:
            with suppress(SkylogError):
                await session.close()
            raise
        return session

    def _use(self, session: MetadataStore) -> None:
        self._session = session
        session.on_expiry(lambda: self._expired(session))

    def _expired(self, session: MetadataStore) -> None:
        if session is self._session:
            for listener in self._expiry_listeners:
                listener()

    @property
    def _current(self) -> MetadataStore:
        assert self._session is not None, "the session was not opened"
        return self._session

    @property
    def max_commit_bytes(self) -> int | None:
        return self._current.max_commit_bytes

    @property
    def is_shared(self) -> bool:
        return self._current.is_shared

    async def load(self, prefix: str) -> dict[str, Entry]:
        return await self._current.load(prefix)

    async def commit(self, operations: Sequence[Operation]) -> None:
        await self._current.commit(operations)

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        watch = _Watch(prefix, watcher)
        self._watches.append(watch)
        try:
            await self._watch(self._current, watch)
        except SessionExpiredError:
            if self.is_kept:
                raise
            await self.renew_until_open()

    def on_expiry(self, listener: Callable[[], None]) -> None:
        self._expiry_listeners.append(listener)

    async def close(self) -> None:
        session, self._expiry_listeners = self._session, []
        if session is not None:
            await session.close()


async def _accept(_: MetadataStore) -> None:
    pass


class _Watch:
    """A watcher and the paths it knows. After a new session has begun, it also reports the entries that are gone."""

    def __init__(self, prefix: str, watcher: Watcher) -> None:
        self.prefix = prefix
        self._watcher = watcher
        self._known: dict[str, Entry] = {}
        self._begins_again = False

    def begin_again(self) -> None:
        self._begins_again = True

    def report(self, changed: Mapping[str, Entry | None]) -> None:
        if self._begins_again:
            self._begins_again = False
            gone: dict[str, Entry | None] = dict.fromkeys(self._known.keys() - changed.keys())
            changed = gone | {path: entry for path, entry in changed.items() if self._known.get(path) != entry}
        for path, entry in changed.items():
            if entry is None:
                self._known.pop(path, None)
            else:
                self._known[path] = entry
        self._watcher(changed)
