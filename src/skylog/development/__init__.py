"""A cluster on one machine, for development, demos and benchmarks."""

from __future__ import annotations

from skylog.development.cluster import DevelopmentCluster
from skylog.development.plan import ClusterPlan

__all__ = ["ClusterPlan", "DevelopmentCluster"]
