"""The job `monitoring`: raises and clears alerts about the brokers, from the metrics that they publish to the log."""

from skylog.pipeline.jobs.monitoring.job import monitoring, monitoring_job
from skylog.pipeline.jobs.monitoring.rules import RULES, AlertRule, read_rules

__all__ = ["RULES", "AlertRule", "monitoring", "monitoring_job", "read_rules"]
