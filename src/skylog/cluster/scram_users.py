"""The SCRAM credentials of users, in the metadata store: the same on every broker at once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from secrets import token_bytes
from typing import Any, Final
from urllib.parse import quote, unquote

from skylog.cluster.store import Entry, EntryChange, MetadataStore, VersionConflictError

USERS: Final = "/users/"
SEED: Final = "/unknown-users"

Credentials = Mapping[str, Mapping[str, Any]]
"""The stored credentials of a user, by the name of the mechanism."""


def _path(name: str) -> str:
    """Return the path of a user. ZooKeeper has no entries named . and .."""
    return USERS + (quote(name, safe="") if name.strip(".") else name.replace(".", "%2E"))


class ScramUsers:
    """The users by name. `load` it before the first use."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._users: dict[str, Credentials] = {}
        self._is_loaded = False
        self.seed = b""
        self._kinds: dict[str, tuple[int, int] | None] = {}

    async def load(self) -> None:
        """Load the users, and follow their changes from then on."""
        if not self._is_loaded:
            await self._store.watch(USERS, self._update)
            self._is_loaded = True

    def _update(self, changed: Mapping[str, Entry | None]) -> None:
        self._kinds.clear()
        for path, entry in changed.items():
            name = unquote(path.removeprefix(USERS))
            if entry is None:
                self._users.pop(name, None)
            else:
                self._users[name] = entry.value["scram"]

    def usual_kind(self, mechanism: str) -> tuple[int, int] | None:
        """Return the bytes of the salt and the iterations that most users have; None if there are none."""
        if mechanism not in self._kinds:
            stored = [user[mechanism] for user in self._users.values() if mechanism in user]
            counts = Counter((len(b64decode(each["salt"])), int(each["iterations"])) for each in stored)
            self._kinds[mechanism] = min(counts, key=lambda kind: (-counts[kind], kind), default=None)
        return self._kinds[mechanism]

    async def load_seed(self) -> None:
        """Load the `seed` of the salts of unknown users, which all brokers share. The first one makes it."""
        while not self.seed:
            entry = (await self._store.load(SEED)).get(SEED)
            if entry is not None:
                self.seed = b64decode(entry.value["seed"])
                return
            with suppress(VersionConflictError):  # another broker was faster
                await self._store.commit([EntryChange(SEED, {"seed": b64encode(token_bytes(32)).decode()}, 0)])

    def names(self) -> list[str]:
        return sorted(self._users)

    def get(self, name: str) -> Credentials:
        """Return the credentials of a user; empty for one that does not exist."""
        return self._users.get(name, {})

    async def change(self, name: str, decide: Callable[[Credentials], Credentials]) -> None:
        """Replace the credentials of a user by what `decide` makes of them. A user without any is removed."""
        path = _path(name)
        while True:
            entry = (await self._store.load(path)).get(path)
            before = entry.value["scram"] if entry is not None else {}
            credentials = dict(decide(before))
            version = entry.version if entry is not None else 0
            if not credentials and entry is None:
                return
            value = {"scram": credentials} if credentials else None
            try:
                await self._store.commit([EntryChange(path, value, version)])
            except VersionConflictError:
                continue
            self._update({path: Entry(value, version + 1) if value is not None else None})
            return
