"""AlterClientQuotas (key 49), versions 0-1: set and remove quotas of users, clients and addresses (KIP-546).

Version 1 added the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class QuotaEntity:
    """A part of a quota's entity. A null name is the default of its type."""

    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


@struct
class QuotaOperation:
    key: str = field("0+")
    value: float = field("0+", default=0.0)
    remove: bool = field("0+", default=False)


@struct
class QuotaAlteration:
    entity: list[QuotaEntity] = field("0+")
    ops: list[QuotaOperation] = field("0+")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    entries: list[QuotaAlteration] = field("0+")
    validate_only: bool = field("0+", default=False)


@struct
class QuotaAlterationResult:
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    entity: list[QuotaEntity] = field("0+")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    entries: list[QuotaAlterationResult] = field("0+")
