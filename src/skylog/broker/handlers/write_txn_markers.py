"""WriteTxnMarkers (27), versions 0-1: end transactions in partitions that this broker leads.

Coordinators send it to the leaders of a transaction's partitions. Administrators send it to end a transaction that
hangs: one that no coordinator knows of. The response waits until the replicas in sync have the markers.
"""

from __future__ import annotations

import asyncio

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.transaction_markers import Decision, Results
from skylog.broker.unique_names import unique_by_topic
from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.protocol.apis import ApiKey
from skylog.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from skylog.security.acl import AclOperation
from skylog.transactions import Producer


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    # They are written even if the client disconnects.
    outcomes = await asyncio.shield(asyncio.gather(*(_write(context, marker) for marker in request.markers)))
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=marker.producer_id, topics=_rows(results))
            for marker, results in zip(request.markers, outcomes, strict=True)
        ]
    )


def _refuse(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    results = []
    for marker in request.markers:
        asked = unique_by_topic((topic.name, topic.partition_indexes) for topic in marker.topics)
        codes = {TopicPartition(topic, index): code for topic, indexes in asked.items() for index in indexes}
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=_rows(codes)))
    return WriteTxnMarkersResponse(markers=results)


async def _write(context: Context, marker: WritableTxnMarker) -> Results:
    asked = unique_by_topic((topic.name, topic.partition_indexes) for topic in marker.topics)
    names = [TopicPartition(topic, index) for topic, indexes in asked.items() for index in indexes]
    decision = Decision(
        Producer(marker.producer_id, marker.producer_epoch), marker.transaction_result, marker.coordinator_epoch
    )
    return await context.broker.transactions.markers.write_all(names, decision)


def _rows(results: Results) -> list[WritableTxnMarkerTopicResult]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for name, code in results.items():
        row = WritableTxnMarkerPartitionResult(partition_index=name.partition, error_code=code)
        by_topic.setdefault(name.topic, []).append(row)
    return [WritableTxnMarkerTopicResult(name=topic, partitions=rows) for topic, rows in by_topic.items()]


API = Api(
    ApiKey.WRITE_TXN_MARKERS,
    0,
    1,
    handle,
    needs=(cluster(AclOperation.CLUSTER_ACTION, AclOperation.ALTER),),
    refuse=_refuse,
)
