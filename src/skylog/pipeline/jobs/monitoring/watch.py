"""The state of one series under one rule: a pure step from sample to sample. Independent of Spark."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from skylog.pipeline.jobs.monitoring.rules import AlertRule

STATE = (
    "last_ms BIGINT, timer_ms BIGINT, breached_ms BIGINT, raised_ms BIGINT, divisor DOUBLE, "
    "times ARRAY<BIGINT>, values ARRAY<DOUBLE>"
)
"""The columns of `SeriesState` in Spark's state store."""


class SeriesState(NamedTuple):
    """What is known of a series.

    `last_ms` is the time of its newest sample. The condition holds since `breached_ms`, and the alert is raised since
    `raised_ms`. `times` and `values` are the samples of a counter within the rule's time. `timer_ms` is the next check
    for silence.
    """

    last_ms: int = 0
    timer_ms: int | None = None
    breached_ms: int | None = None
    raised_ms: int | None = None
    divisor: float | None = None
    times: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


class Change(NamedTuple):
    """An alert that was raised or cleared, with the value that did it: None for silence."""

    is_raised: bool
    since_ms: int
    at_ms: int
    value: float | None


def sample(
    rule: AlertRule, state: SeriesState, name: str, time_ms: int, value: float
) -> tuple[SeriesState, list[Change]]:
    """Add a sample. Samples that are older than the newest one are ignored."""
    if time_ms < state.last_ms:
        return state, []
    if name == rule.divided_by:
        return state._replace(divisor=value), []
    state = state._replace(last_ms=time_ms)
    if rule.is_about_silence:
        return _cleared(state, time_ms, value)
    if rule.divided_by is not None:
        if not state.divisor:
            return state, []
        value /= state.divisor
    if rule.increase_s:
        state, value = _increase(rule, state, time_ms, value)
    if not rule.is_breached(value):
        return _cleared(state._replace(breached_ms=None), time_ms, value)
    breached_ms = time_ms if state.breached_ms is None else state.breached_ms
    state = state._replace(breached_ms=breached_ms)
    if state.raised_ms is None and time_ms - breached_ms >= rule.for_s * 1000:
        return _raised(state, time_ms, value)
    return state, []


def silence(rule: AlertRule, state: SeriesState, now_ms: int) -> tuple[SeriesState, list[Change]]:
    """Note that the series has had no sample for the time of the rule."""
    if rule.is_about_silence:
        return _raised(state, now_ms, None) if state.raised_ms is None else (state, [])
    return _cleared(state._replace(breached_ms=None), now_ms, None)


def end(state: SeriesState, now_ms: int) -> list[Change]:
    """Return the changes of a series whose rule was removed."""
    return _cleared(state, now_ms, None)[1]


def _raised(state: SeriesState, at_ms: int, value: float | None) -> tuple[SeriesState, list[Change]]:
    return state._replace(raised_ms=at_ms), [Change(True, at_ms, at_ms, value)]


def _cleared(state: SeriesState, at_ms: int, value: float | None) -> tuple[SeriesState, list[Change]]:
    if state.raised_ms is None:
        return state, []
    return state._replace(raised_ms=None), [Change(False, state.raised_ms, at_ms, value)]


def _increase(rule: AlertRule, state: SeriesState, time_ms: int, value: float) -> tuple[SeriesState, float]:
    """Return the increase of a counter over the rule's time. A counter that falls has started again from 0."""
    start_ms = time_ms - rule.increase_s * 1000
    samples = [(at, each) for at, each in zip(state.times, state.values, strict=True) if at >= start_ms]
    samples.append((time_ms, value))
    values = [each for _, each in samples]
    increase = sum(after - before if after >= before else after for before, after in pairwise(values))
    return state._replace(times=tuple(at for at, _ in samples), values=tuple(values)), increase
