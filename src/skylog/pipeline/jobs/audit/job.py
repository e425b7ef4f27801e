"""The job `audit`: compares the counts of all tiers again and again, and hands each result to a callback."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skylog.audit.report import AUDIT_TOPIC, NoAuditTopicError
from skylog.client import BrokerUnreachableError
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.jobs.audit.books import BalanceQuery, BalanceResult, run_balance
from skylog.pipeline.runnable import JobRun, RunnableJob
from skylog.pipeline.runner import Progress, plain_errors
from skylog.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

NAME: Final = "audit"
PAUSE_S: Final = 60.0
"""Between two runs of a job that runs continuously: the default length of a window."""
_PRINTED: Final = "standard output"
_UNKNOWN_LAG: Final = -1


class AuditJob(RunnableJob):
    """Calls `tell` with each balance and its time in milliseconds, and writes it to the table at `into`, if set.

    `query_at` returns the windows to compare at a time, so that a period can slide.
    """

    def __init__(
        self,
        query_at: Callable[[int], BalanceQuery],
        tell: Callable[[BalanceResult, int], None],
        into: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(NAME, [AUDIT_TOPIC], _PRINTED if into is None else Table(into).target)
        self._query_at = query_at
        self._tell = tell
        self._into = into

    def run_with(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        """Compare until `run.stop` is set, or once. Raises NoAuditTopicError only if once."""
        if self._into is not None:
            Table(self._into).exists()  # raises an error if something else is there
        schedule = run.schedule if run.schedule.has_rounds else replace(run.schedule, every_s=PAUSE_S)
        with plain_errors(NAME):
            for number, _ in enumerate(schedule.rounds(run.stop)):
                try:
                    run.report(self._compare(spark, cluster, number))
                except (BrokerUnreachableError, NoAuditTopicError) as error:
                    if schedule.every_s is None:
                        raise
                    logger.warning("%s: %s", NAME, error)

    def _compare(self, spark: SparkSession, cluster: Cluster, number: int) -> Progress:
        now_ms, began = time.time_ns() // 1_000_000, time.monotonic()
        with run_balance(spark, cluster, self._query_at(now_ms), now_ms) as answer:
            self._tell(answer, now_ms)
            if self._into is not None:
                answer.save(self._into)
            return Progress(NAME, number, answer.message_count, time.monotonic() - began, _UNKNOWN_LAG)
