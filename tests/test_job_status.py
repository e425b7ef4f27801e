"""The status of a job as a message."""

from __future__ import annotations

import orjson
import pytest

from skylog.job_status import MAX_NAME, MAX_TEXT, MAX_TOPICS, JobState, JobStatus, JobStatusError

STATUS = JobStatus(
    "land: events -> /warehouse",
    "land",
    "worker-1",
    4711,
    JobState.WAITING,
    1000,
    9000,
    batch=3,
    batch_at_ms=8000,
    records=12,
    seconds=0.5,
    lag=7,
    records_total=50,
    topics=("events", "clicks"),
)


def test_a_status_survives_the_topic() -> None:
    assert JobStatus.decode(STATUS.encode()) == STATUS


def test_a_status_before_the_first_batch_survives_as_well() -> None:
    status = JobStatus("a", "land", "h", 1, JobState.FAILED, 1, 2, last_error="no disk")
    assert JobStatus.decode(status.encode()) == status


def test_what_a_later_version_adds_is_left_alone_and_what_an_earlier_one_lacks_is_not_missed() -> None:
    bare = {"name": "a", "state": "running", "started_at_ms": 1, "reported_at_ms": 2, "mood": "good"}
    status = JobStatus.decode(orjson.dumps(bare))
    assert (status.name, status.state, status.batch, status.topics) == ("a", JobState.RUNNING, None, ())


def test_an_error_is_cut_to_a_length_that_can_be_shown() -> None:
    fields = orjson.loads(STATUS.encode()) | {"last_error": "x" * 100_000}
    assert JobStatus.decode(orjson.dumps(fields)).last_error == "x" * MAX_TEXT


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no json",
        b"[]",
        b"7",
        b'{"name": "a"}',
        b'{"name": "a", "state": "odd", "started_at_ms": 1, "reported_at_ms": 2}',
        b'{"name": "a", "state": "running", "started_at_ms": "x", "reported_at_ms": 2}',
        b'{"name": "a", "state": "running", "started_at_ms": 1, "reported_at_ms": 2, "topics": 5}',
        b'{"name": "a", "state": "running", "started_at_ms": 1, "reported_at_ms": 1e999}',
    ],
)
def test_what_is_no_status_is_refused(value: bytes) -> None:
    with pytest.raises(JobStatusError, match="not a job status"):
        JobStatus.decode(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reported_at_ms", 10**18),
        ("reported_at_ms", -1),
        ("started_at_ms", True),
        ("batch_at_ms", 253_402_300_799_001),
        ("lag", "9" * 400),
        ("lag", 2**63),
        ("pid", "9" * 30),
        ("seconds", "NaN"),
        ("seconds", 1e300),
        ("records_total", 1.5),
        ("name", {"a": 1}),
        ("topics", "events"),
        ("topics", [7]),
    ],
)
def test_what_no_page_could_show_is_refused(field: str, value: object) -> None:
    fields = orjson.loads(STATUS.encode()) | {field: value}
    with pytest.raises(JobStatusError, match="not a job status"):
        JobStatus.decode(orjson.dumps(fields))


def test_names_and_topics_are_cut_to_what_can_be_shown() -> None:
    fields = orjson.loads(STATUS.encode()) | {"name": "n" * 9999, "host": "h" * 9999, "topics": ["t" * 9999] * 999}
    status = JobStatus.decode(orjson.dumps(fields))
    assert (len(status.name), len(status.host)) == (MAX_NAME, MAX_NAME)
    assert status.topics == ("t" * MAX_NAME,) * MAX_TOPICS


@pytest.mark.parametrize(
    ("state", "is_alive"),
    [("running", True), ("waiting", True), ("retrying", True), ("stopped", False), ("failed", False)],
)
def test_a_job_is_alive_until_it_reports_its_end(state: str, is_alive: bool) -> None:
    fields = orjson.loads(STATUS.encode()) | {"state": state}
    assert JobStatus.decode(orjson.dumps(fields)).is_alive is is_alive
