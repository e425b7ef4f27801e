"""A raw client that knows the requests of a transaction."""

from __future__ import annotations

from typing import Any

from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from skylog.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from skylog.protocol.describe_transactions import DescribedTransaction, DescribeTransactionsRequest
from skylog.protocol.end_txn import EndTxnRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from skylog.records import iterate_batches, read_marker, read_records
from skylog.transactions import Producer
from tests.broker.process import until
from tests.broker.raw import RawClient, batch_of

COMMITTED = 1
NO_PRODUCER = Producer(-1, -1)


class TransactionClient(RawClient):
    """Requests of the transactional id `t` where none is named."""

    def find(self, transactional_id: str = "t") -> int:
        (found,) = self.ask(FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1), 4).coordinators
        assert found.error_code == 0, found.error_message
        node_id: int = found.node_id
        return node_id

    def init_once(
        self,
        transactional_id: str = "t",
        timeout_ms: int = 60_000,
        expected: Producer = NO_PRODUCER,
        version: int = 4,
    ) -> Any:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id if version >= 3 else -1,
            producer_epoch=expected.epoch if version >= 3 else -1,
        )
        return self.ask(request, version)

    def init(self, transactional_id: str = "t", timeout_ms: int = 60_000, **options: Any) -> Producer:
        """Start a producer, as often as it takes."""
        answers: list[Any] = []

        def start() -> bool:
            answers.append(self.init_once(transactional_id, timeout_ms, **options))
            return answers[-1].error_code not in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            )

        until(start, f"a producer of {transactional_id}")
        assert answers[-1].error_code == 0, ErrorCode(answers[-1].error_code)
        return Producer(answers[-1].producer_id, answers[-1].producer_epoch)

    def add(
        self, producer: Producer, *names: TopicPartition, transactional_id: str = "t", version: int = 3
    ) -> list[ErrorCode]:
        topics = [AddPartitionsToTxnTopic(name=name.topic, partitions=[name.partition]) for name in names]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
        response = self.ask(request, version)
        return [
            ErrorCode(row.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]

    def end(self, producer: Producer, commits: bool, transactional_id: str = "t", version: int = 3) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )
        return ErrorCode(self.ask(request, version).error_code)

    def produce_in(
        self,
        producer: Producer,
        topic: str,
        *values: bytes,
        sequence: int = 0,
        partition: int = 0,
        transactional_id: str | None = "t",
        version: int = 9,
    ) -> ErrorCode:
        batch = batch_of(
            *values,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=partition, records=bytes(batch))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        (row,) = self.ask(request, version).responses[0].partition_responses
        return ErrorCode(row.error_code)

    def add_offsets(
        self, producer: Producer, group: str = "g", transactional_id: str = "t", version: int = 3
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        )
        return ErrorCode(self.ask(request, version).error_code)

    def commit_in(
        self,
        producer: Producer,
        topic: str,
        offset: int,
        group: str = "g",
        *,
        member_id: str = "",
        generation: int = -1,
        transactional_id: str = "t",
        version: int = 3,
    ) -> ErrorCode:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[row])],
        )
        return ErrorCode(self.ask(request, version).topics[0].partitions[0].error_code)

    def group_offset(self, topic: str, group: str = "g", *, stable: bool = False) -> tuple[int, ErrorCode]:
        """The committed offset of partition 0, and its error."""
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        (found,) = self.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 8).groups
        assert found.error_code == 0, ErrorCode(found.error_code)
        row = found.topics[0].partitions[0]
        return row.committed_offset, ErrorCode(row.error_code)

    def describe(self, transactional_id: str = "t") -> DescribedTransaction:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        found: DescribedTransaction = self.ask(request, 0).transaction_states[0]
        return found

    def wait_for(self, state: str, transactional_id: str = "t") -> None:
        until(lambda: self.describe(transactional_id).transaction_state == state, f"{transactional_id} is {state}")

    def committed_values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """What a read_committed consumer sees, from the start."""
        found = self.fetch(topic, 0, partition=partition, isolation=COMMITTED)
        aborted = sorted((row.first_offset, row.producer_id) for row in found.aborted_transactions or ())
        return visible_values(bytes(found.records or b""), aborted)


def visible_values(data: bytes, aborted: list[tuple[int, int]]) -> list[bytes | None]:
    """Filter as consumers do: records of a producer from the first offset of its aborted transaction to its marker."""
    left = list(aborted)
    active: set[int] = set()
    values: list[bytes | None] = []
    for position, header in iterate_batches(data):
        batch = data[position : position + header.size_bytes]
        while left and left[0][0] <= header.base_offset:
            active.add(left.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.commits:
                active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            values += [record.value for record in read_records(batch)]
    return values
