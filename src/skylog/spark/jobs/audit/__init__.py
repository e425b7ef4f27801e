"""Balances what all tiers have counted, over an audit topic of any length.

`reports` and `balance` are transforms of DataFrames; they say what `skylog.audit.books` says of the same reports, by
asking it: Spark brings the reports of a topic together, and adds up those that need not be apart.
"""

from __future__ import annotations

from skylog.spark.jobs.audit.balance import Period, balance
from skylog.spark.jobs.audit.reports import reports

__all__ = ["Period", "balance", "reports"]
