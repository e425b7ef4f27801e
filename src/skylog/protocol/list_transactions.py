"""ListTransactions (key 66), versions 0-1: the transactions of a coordinator (KIP-664).

Version 1 added the filter by duration (KIP-994).
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@message(api_key=66, versions="0-1", flexible="0+")
class ListTransactionsRequest(Message):
    """Empty lists and a `duration_filter` of -1 filter nothing."""

    state_filters: list[str] = field("0+", default_factory=list)
    producer_id_filters: list[Int64] = field("0+", default_factory=list)
    duration_filter: Int64 = field("1+", default=-1)


@struct
class ListedTransaction:
    transactional_id: str = field("0+")
    producer_id: Int64 = field("0+")
    transaction_state: str = field("0+")


@message(api_key=66, versions="0-1", flexible="0+")
class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    unknown_state_filters: list[str] = field("0+", default_factory=list)
    transaction_states: list[ListedTransaction] = field("0+", default_factory=list)
