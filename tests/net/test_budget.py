"""Memory for requests: acquired, waited for, released."""

from __future__ import annotations

from skylog.net import MemoryBudget


def test_the_smallest_waiting_request_is_granted_first() -> None:
    budget = MemoryBudget(100)
    served: list[int] = []
    assert budget.acquire(90, lambda: None)
    for size_bytes in (60, 30, 80):
        assert not budget.acquire(size_bytes, lambda size_bytes=size_bytes: served.append(size_bytes))  # type: ignore[misc]
    budget.release(90)
    assert served == [30, 60]
    budget.release(30)
    budget.release(60)
    assert served == [30, 60, 80]


def test_a_request_larger_than_the_budget_is_granted_alone() -> None:
    budget = MemoryBudget(100)
    assert budget.try_acquire(500)
    assert not budget.try_acquire(1)
    budget.release(500)
    assert budget.try_acquire(1)
    assert not budget.try_acquire(500)


def test_memory_that_is_given_back_at_once_serves_the_next() -> None:
    budget = MemoryBudget(100)
    served: list[int] = []

    def take_and_give() -> None:
        served.append(1)
        budget.release(100)

    assert budget.acquire(100, lambda: None)
    for _ in range(1000):  # as many as would overflow the stack
        assert not budget.acquire(100, take_and_give)
    budget.release(100)
    assert len(served) == 1000
    assert budget.used_bytes == 0
