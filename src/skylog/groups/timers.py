"""When each group wants its next tick, so that groups in which nothing can run out cost nothing."""

from __future__ import annotations

from heapq import heappop, heappush


class GroupTimers:
    """Ids of groups by the time of their next tick.

    A time that is put off is not changed here: the group is ticked at the old one, does nothing, and says the new one.
    So signs of life, which only put times off, cost nothing either.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}  # an entry of the heap with another time is out of date

    def __len__(self) -> int:
        return len(self._at_ms)

    def schedule(self, group_id: str, at_ms: int | None) -> None:
        """Have the group ticked at `at_ms` or before; None wants no tick."""
        if at_ms is None or self._at_ms.get(group_id, at_ms + 1) <= at_ms:
            return
        self._at_ms[group_id] = at_ms
        heappush(self._heap, (at_ms, group_id))

    def take_due(self, now_ms: int) -> list[str]:
        """The groups whose time has come. Each is to be ticked and scheduled anew."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, group_id = heappop(self._heap)
            if self._at_ms.get(group_id) == at_ms:
                del self._at_ms[group_id]
                due.append(group_id)
        return due
