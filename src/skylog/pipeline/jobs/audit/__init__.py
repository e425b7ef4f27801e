"""Compares the counts of all tiers, for an audit topic of any length.

`reports` and `balance` are DataFrame transforms. Spark groups the reports by topic and aggregates them where possible.
`skylog.audit.books` then computes the balance of each topic, so the results are the same as without Spark.
"""

from __future__ import annotations

from skylog.pipeline.jobs.audit.balance import Period, balance
from skylog.pipeline.jobs.audit.job import AuditJob
from skylog.pipeline.jobs.audit.reports import reports

__all__ = ["AuditJob", "Period", "balance", "reports"]
