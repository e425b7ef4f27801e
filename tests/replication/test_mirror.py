"""Which topics a mirror selects, how its topics are promoted, and how a mirrored partition is judged."""

from __future__ import annotations

from typing import Any

import pytest

from skylog.errors import ConfigError
from skylog.records import BatchHeader, build_batch
from skylog.records.record import Record
from skylog.replication.mirror import Mirror, MirrorTopic, TopicState, followed_configs, split_patterns
from skylog.replication.mirror_progress import MirrorProgress, Status, compare

MIRROR = Mirror("m", "a:1, [::1]:2", split_patterns("clicks, orders.*,_skylog_audit"), ("*",), "west.")


@pytest.mark.parametrize(
    ("topic", "is_selected"),
    [
        ("clicks", True),
        ("clicks2", False),
        ("orders.eu", True),
        ("orders", False),
        ("_skylog_audit", True),
        ("_skylog_metrics", False),
        ("__consumer_offsets", False),
    ],
)
def test_topics_are_selected_by_name_and_by_pattern(topic: str, is_selected: bool) -> None:
    assert MIRROR.selects(topic, is_internal=False) is is_selected
    assert not MIRROR.selects(topic, is_internal=True)


def test_a_pattern_for_everything_leaves_out_the_topics_of_the_system() -> None:
    every = Mirror("m", "a:1", ("*",))
    assert every.selects("clicks", is_internal=False)
    assert not every.selects("_skylog_audit", is_internal=False)
    assert not every.names("clicks")


def test_a_definition_survives_its_stored_form_and_hides_its_login() -> None:
    mirror = Mirror("m", "a:1", ("t",), client={"sasl.password": "secret"}).with_topic("t", MirrorTopic("t", "id"))
    assert Mirror.from_value(mirror.to_value()) == mirror
    assert "secret" not in str(mirror.describe()) + repr(mirror)


@pytest.mark.parametrize(
    "wrong",
    [
        Mirror("..", "a:1", ("t",)),
        Mirror("m", "a", ("t",)),
        Mirror("m", "", ("t",)),
        Mirror("m", "a:1", ()),
        Mirror("m", "a:1", ("t",), prefix="a/b"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(wrong: Mirror) -> None:
    with pytest.raises(ConfigError):
        wrong.check()
    assert MIRROR.addresses() == [("a", 1), ("::1", 2)]


def test_a_topic_is_promoted_when_all_its_partitions_are() -> None:
    mirror = MIRROR.with_topic("west.t", MirrorTopic("t")).with_topic("west.u", MirrorTopic("u"))
    begun = mirror.promote(["west.t"])
    assert begun.target_names() == {"u": "west.u"}
    assert begun.finish("west.u", [0], 1) is begun  # it is not being promoted
    half = begun.finish("west.t", [1], 2)
    assert (half.mirrored["west.t"].owns(0), half.mirrored["west.t"].owns(1)) == (True, False)
    done = half.finish("west.t", [0], 2)
    assert done.mirrored["west.t"].state is TopicState.PROMOTED
    assert not done.mirrored["west.t"].owns(0)
    with pytest.raises(ConfigError, match="has no topic 'x'"):
        mirror.promote(["x"])


def test_settings_follow_the_source_except_those_of_the_target() -> None:
    source = {"retention.ms": "1", "min.insync.replicas": "3", "unknown": "x"}
    target = {"min.insync.replicas": "2", "segment.bytes": "9"}
    known = ("retention.ms", "min.insync.replicas", "segment.bytes")
    assert followed_configs(source, target, known) == {"retention.ms": "1", "min.insync.replicas": "2"}


# -- progress


def test_the_lag_in_seconds_begins_when_something_is_missing() -> None:
    progress = MirrorProgress(10, now_s=100.0)
    progress.attached(3)
    progress.answered(10, 101.0, has_records=False)
    assert (progress.lag, progress.lag_s(105.0)) == (0, 0.0)
    progress.answered(15, 105.0, has_records=True)
    assert (progress.lag, progress.lag_s(107.0)) == (5, 6.0)
    progress.copied(15, 4)
    progress.answered(15, 108.0, has_records=True)
    assert (progress.lag, progress.lag_s(109.0), progress.source_epoch) == (0, 0.0, 4)
    progress.failed("gone")
    assert (progress.status, progress.lag_s(118.0)) == (Status.FAILING, 10.0)


def test_a_diverged_partition_stays_it() -> None:
    progress = MirrorProgress(10, now_s=0.0)
    progress.diverged("other records")
    progress.attached(1)
    progress.failed("gone")
    progress.detached()
    assert (progress.status, progress.is_attached) == (Status.DIVERGED, False)


def test_offsets_that_were_missed_are_counted_but_not_those_before_the_first_copy() -> None:
    progress = MirrorProgress(0, now_s=0.0)
    progress.restarted(50)
    assert progress.skipped == 0
    progress.copied(60, 1)
    progress.restarted(75)
    assert (progress.skipped, progress.end_offset) == (15, 75)


def header(*values: bytes, base_offset: int = 10, **options: Any) -> BatchHeader:
    batch = build_batch([Record(value, b"k", 1000) for value in values], **options)
    return BatchHeader.read(batch)._replace(base_offset=base_offset)


def test_logs_agree_if_their_last_batches_are_the_same() -> None:
    ours = header(b"a", b"b")
    assert compare(ours, ours._replace(partition_leader_epoch=9), is_compacted=False) is None
    assert "other records" in str(compare(ours, header(b"a", b"c"), is_compacted=False))
    assert "10-11" in str(compare(ours, header(b"a"), is_compacted=False))
    assert compare(ours, header(b"x", base_offset=12), is_compacted=False) is not None


def test_compaction_may_have_changed_or_removed_the_batch_of_the_source() -> None:
    ours = header(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=7)
    cleaned = header(b"b", b"b", producer_id=5, producer_epoch=0, base_sequence=7)
    assert compare(ours, cleaned, is_compacted=True) is None
    assert compare(ours, header(b"x", base_offset=12), is_compacted=True) is None
    foreign = header(b"b", b"b", producer_id=6, producer_epoch=0, base_sequence=7)
    assert compare(ours, foreign, is_compacted=True) is not None
