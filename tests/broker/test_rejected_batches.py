"""Idempotent producers with several requests in flight while a partition is away for a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.broker.rejected_batches import RejectedBatches
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.records import BatchHeader
from skylog.storage.producer_state import ProducerState

from .members import Members, in_cluster
from .raw import batch_of, values_in

TOO_FEW = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
PLACE = TopicPartition("t", 0)


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    value = b"%d" % sequence
    return batch_of(value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def code_of(members: Members, sequence: int) -> ErrorCode:
    return ErrorCode((await members.produce(1, "t", batch(sequence))).error_code)


@pytest.mark.parametrize("known", [0, 2], ids=["new producer", "known producer"])
def test_a_batch_behind_a_rejected_one_comes_again_in_order(tmp_path: Path, known: int) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        for sequence in range(known):
            assert await code_of(members, sequence) == ErrorCode.NONE
        await members.change("t", in_sync_replicas=(1,))
        assert await code_of(members, known) == ErrorCode.NOT_ENOUGH_REPLICAS
        await members.change("t", in_sync_replicas=(1, 2, 3))
        assert await code_of(members, known + 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await code_of(members, known + 2) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert [await code_of(members, known + more) for more in range(3)] == [ErrorCode.NONE] * 3
        found = await members.fetch(1, "t", 0, max_wait_ms=10_000)
        assert values_in(found.records) == [(each, b"%d" % each) for each in range(known + 3)]

    in_cluster(tmp_path, scenario)


def test_a_gap_that_no_rejection_explains_is_an_error(tmp_path: Path) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        assert await code_of(members, 0) == ErrorCode.NONE
        await members.change("t", in_sync_replicas=(1,))
        assert await code_of(members, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        await members.change("t", in_sync_replicas=(1, 2, 3))
        assert await code_of(members, 1) == ErrorCode.NONE
        assert await code_of(members, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    in_cluster(tmp_path, scenario)


def remembered(*sequences: int, error: KafkaError = TOO_FEW) -> RejectedBatches:
    rejected = RejectedBatches()
    for sequence in sequences:
        rejected.note(PLACE, memoryview(batch(sequence)), error)
    return rejected


def producers(last_sequence: int) -> ProducerState:
    state = ProducerState()
    state.record(BatchHeader.read(batch(last_sequence)), 0, 0)
    return state


@pytest.mark.parametrize(
    "following", [batch(5), batch(6, epoch=1), batch(6, producer_id=8)], ids=["again", "next epoch", "other producer"]
)
def test_a_rejection_is_forgotten(following: bytearray) -> None:
    rejected = remembered(5, 6)
    with pytest.raises(KafkaError):
        rejected.check(PLACE, memoryview(batch(6)), producers(4))
    rejected.check(PLACE, memoryview(following), producers(4))
    assert len(rejected) == 0


def test_a_rejected_batch_that_was_stored_on_another_connection_explains_nothing() -> None:
    remembered(5).check(PLACE, memoryview(batch(7)), producers(5))


def test_only_batches_that_come_again_are_remembered() -> None:
    assert len(remembered(5, error=KafkaError(ErrorCode.MESSAGE_TOO_LARGE))) == 0
    assert len(remembered(5, error=KafkaError(ErrorCode.CORRUPT_MESSAGE))) == 0
    assert len(remembered(-1)) == 0
    assert len(remembered(5)) == 1


def test_a_topic_whose_name_no_topic_can_have_is_not_remembered() -> None:
    rejected = RejectedBatches()
    rejected.note(TopicPartition("t" * 30_000, 0), memoryview(batch(5)), TOO_FEW)
    assert len(rejected) == 0


def test_a_committed_duplicate_is_acknowledged_though_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    """Otherwise five later batches could be stored before it comes again, and it would not be recognized any more."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        assert [await code_of(members, each) for each in range(2)] == [ErrorCode.NONE] * 2
        await members.change("t", in_sync_replicas=(1,))
        found = await members.produce(1, "t", batch(0))
        assert (found.error_code, found.base_offset) == (ErrorCode.NONE, 0)
        assert await code_of(members, 2) == ErrorCode.NOT_ENOUGH_REPLICAS

    in_cluster(tmp_path, scenario)


def test_a_batch_before_the_first_rejected_one_takes_its_place() -> None:
    """A new leader may lack a batch that the former one had stored, with the rejected one behind it."""
    rejected, state = RejectedBatches(), ProducerState()
    rejected.note(PLACE, memoryview(batch(1)), TOO_FEW)
    rejected.check(PLACE, memoryview(batch(0)), state)
    rejected.note(PLACE, memoryview(batch(0)), TOO_FEW)
    with pytest.raises(KafkaError, match="too few"):
        rejected.check(PLACE, memoryview(batch(1)), state)
    rejected.check(PLACE, memoryview(batch(0)), state)
    assert len(rejected) == 0


def test_sequences_that_begin_again_keep_their_order() -> None:
    rejected, state = RejectedBatches(), ProducerState()
    rejected.note(PLACE, memoryview(batch(0x7FFFFFFF)), TOO_FEW)
    with pytest.raises(KafkaError, match="too few"):
        rejected.check(PLACE, memoryview(batch(0)), state)
    rejected.check(PLACE, memoryview(batch(0x7FFFFFFE)), state)
