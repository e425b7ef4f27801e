"""DescribeClientQuotas (key 48), versions 0-1: the quotas of users, clients and addresses (KIP-546).

Version 1 added the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class QuotaFilterComponent:
    """`match_type` is 0 for the name in `match`, 1 for the default, 2 for any name."""

    entity_type: str = field("0+")
    match_type: Int8 = field("0+")
    match: str | None = field("0+", nullable="0+", default=None)


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    components: list[QuotaFilterComponent] = field("0+")
    strict: bool = field("0+", default=False)


@struct
class DescribedQuotaEntity:
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


@struct
class DescribedQuotaValue:
    key: str = field("0+")
    value: float = field("0+")


@struct
class DescribedQuota:
    entity: list[DescribedQuotaEntity] = field("0+")
    values: list[DescribedQuotaValue] = field("0+")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    """`entries` is null beside an error."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    entries: list[DescribedQuota] | None = field("0+", nullable="0+")
