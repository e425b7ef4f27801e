"""The time of each group's next tick, so that groups in which nothing can expire cost nothing."""

from __future__ import annotations

from heapq import heappop, heappush


class GroupTimers:
    """Group ids by the time of their next tick.

    A later time does not replace an earlier one: the group is ticked at the earlier time, does nothing, and is
    scheduled again. So heartbeats, which only postpone ticks, cost nothing here.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}  # a heap entry with another time is stale

    def __len__(self) -> int:
        return len(self._at_ms)

    def schedule(self, group_id: str, at_ms: int | None) -> None:
        """Schedule a tick of the group at `at_ms` or earlier. None schedules nothing."""
        if at_ms is None or self._at_ms.get(group_id, at_ms + 1) <= at_ms:
            return
        self._at_ms[group_id] = at_ms
        heappush(self._heap, (at_ms, group_id))

    def take_due(self, now_ms: int) -> list[str]:
        """Remove and return the groups that are due. The caller ticks each and schedules it again."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, group_id = heappop(self._heap)
            if self._at_ms.get(group_id) == at_ms:
                del self._at_ms[group_id]
                due.append(group_id)
        return due
