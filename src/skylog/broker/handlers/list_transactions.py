"""ListTransactions (66), versions 0-1: the transactional ids that this broker coordinates, filtered.

Version 1 added the filter by duration (KIP-994): transactions that have been running for longer than that.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.access import sees
from skylog.broker.security.needs import each_transactional_id
from skylog.broker.time_slice import TimeSlice
from skylog.broker.unique_names import unique
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_transactions import ListedTransaction, ListTransactionsRequest, ListTransactionsResponse
from skylog.security.acl import AclOperation, ResourceType
from skylog.transactions import TransactionEntry, TransactionState

STATES: Final = frozenset({*(state.value for state in TransactionState), "PrepareEpochFence"})
"""Those that Kafka knows. The last one is never stored."""


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Return also the state filters that Kafka does not know."""
    unknown = [state for state in unique(request.state_filters) if state not in STATES]
    coordinator = context.broker.transactions
    if coordinator.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    now_ms = context.broker.clock.now_ms()
    time_slice = TimeSlice()
    found: list[ListedTransaction] = []
    for shard in coordinator.shards():
        for transaction in shard.all():
            await time_slice.yield_if_over()
            entry = transaction.entry
            assert entry is not None
            if (
                (not states or entry.state.value in states)
                and (not producers or entry.producer.producer_id in producers)
                and _has_run_for(entry, request.duration_filter, now_ms)
                and sees(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
            ):
                found.append(
                    ListedTransaction(
                        transactional_id=transaction.transactional_id,
                        producer_id=entry.producer.producer_id,
                        transaction_state=entry.state.value,
                    )
                )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def _has_run_for(entry: TransactionEntry, duration_ms: int, now_ms: int) -> bool:
    if duration_ms < 0:
        return True
    return not entry.state.is_idle and now_ms - entry.start_ms > duration_ms


API = Api(
    ApiKey.LIST_TRANSACTIONS,
    0,
    1,
    handle,
    has_large_answers=True,
    needs=(each_transactional_id(AclOperation.DESCRIBE),),
)
