"""The audit: every tier counts the messages that pass it, and the counts are compared.

Works with counts, reports and files. Imports neither clients nor brokers; they pass in what the audit needs.
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
    """Load the broker's tier on first access: it imports the storage layer, which applications do not need."""
    if name == "StoredTier":
        from skylog.audit.stored_tier import StoredTier

        return StoredTier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
