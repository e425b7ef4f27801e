"""Books that balance: every tier counts what passes it, and the counts are compared.

Knows counts, reports and files; clients and brokers hand it what it needs and are not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skylog.audit.consumer_tier import ConsumerAudit
from skylog.audit.producer_tier import ProducerAudit
from skylog.audit.report import AUDIT_TOPIC, DEFAULT_WINDOW_MS, Count, NoAuditTopicError, Report, ReportError, Tier

if TYPE_CHECKING:
    from skylog.audit.stored_tier import StoredTier

__all__ = [
    "AUDIT_TOPIC",
    "DEFAULT_WINDOW_MS",
    "ConsumerAudit",
    "Count",
    "NoAuditTopicError",
    "ProducerAudit",
    "Report",
    "ReportError",
    "StoredTier",
    "Tier",
]


def __getattr__(name: str) -> Any:
    """The broker's tier comes with the storage layer, which applications have no need of."""
    if name == "StoredTier":
        from skylog.audit.stored_tier import StoredTier

        return StoredTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
