"""ListTransactions (66), versions 0-1: transactions are not served, so there are none."""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.repeats import once
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_transactions import ListTransactionsRequest, ListTransactionsResponse

STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(_: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """A state that Kafka does not know is named in the answer."""
    unknown = [state for state in once(request.state_filters) if state not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)


API = Api(ApiKey.LIST_TRANSACTIONS, 0, 1, handle)
