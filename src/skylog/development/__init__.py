"""A cluster on one machine, for development, demos and benchmarks."""

from __future__ import annotations

from skylog.development.cluster import DevelopmentCluster
from skylog.development.plan import ClusterPlan, secrets_of

__all__ = ["ClusterPlan", "DevelopmentCluster", "secrets_of"]
