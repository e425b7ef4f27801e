"""The histogram of times: precise enough for a p99, and right in its sums."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.broker.metrics.latency import BOUNDS_MS, Latency


def buckets(latency: Latency) -> dict[str, float]:
    return {sample.labels["le"]: sample.value for sample in latency.samples({}) if sample.suffix == "_bucket"}


def test_there_are_few_buckets() -> None:
    """Each is a series of its own, for every API and histogram."""
    assert len(BOUNDS_MS) <= 20


def test_bounds_reach_from_a_twentieth_of_a_millisecond_to_a_minute_and_lie_close() -> None:
    assert (BOUNDS_MS[0], BOUNDS_MS[-1]) == (0.05, 60_000)
    assert all(1 < b / a <= 2.21 for a, b in itertools.pairwise(BOUNDS_MS))


@pytest.mark.parametrize(("ms", "label"), [(0.0, "0.05"), (1.0, "1"), (1.01, "2.2"), (60_000, "60000"), (1e6, "+Inf")])
def test_a_time_is_in_the_first_bucket_that_is_not_below_it(ms: float, label: str) -> None:
    latency = Latency()
    latency.record(ms / 1000)
    assert next(name for name, count in buckets(latency).items() if count) == label


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 32))))
def test_buckets_include_those_before_and_the_last_has_all(times: list[tuple[float, int]]) -> None:
    latency = Latency()
    for seconds, count in times:
        latency.record(seconds, count)
    found = list(buckets(latency).values())
    assert found == sorted(found)
    total = sum(count for _, count in times)
    assert found[-1] == latency.count == total
    (whole,) = [sample.value for sample in latency.samples({}) if sample.suffix == "_sum"]
    assert whole == pytest.approx(sum(seconds * count for seconds, count in times) * 1000)


def test_a_total_has_the_times_of_all_its_parts() -> None:
    a, b = Latency(), Latency()
    a.record(0.001, 2)
    b.record(1.0)
    whole = Latency.total([a, b])
    assert (whole.count, buckets(whole)["1"], buckets(whole)["1000"]) == (3, 2, 3)
    assert (a.count, b.count) == (2, 1)


def test_those_that_were_not_timed_took_as_long_as_the_one_before_them() -> None:
    latency = Latency()
    latency.record(0.001)
    latency.untimed += 2
    latency.record(1.0)
    latency.untimed += 1
    assert latency.count == 5
    assert (buckets(latency)["1"], buckets(latency)["1000"]) == (3, 5)
    (whole,) = [sample.value for sample in latency.samples({}) if sample.suffix == "_sum"]
    assert whole == pytest.approx(2003)
    assert latency.count == 5
