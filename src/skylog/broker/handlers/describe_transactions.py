"""DescribeTransactions (65), version 0: transactions are not served, so no transactional id is known."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.repeats import once
from skylog.broker.turn import in_turns
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


async def handle(_: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedTransaction(transactional_id=each, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            async for each in in_turns(once(request.transactional_ids))
        ]
    )


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, handle)
