"""Periodic snapshots of the cluster, the last hour of figures, and verdicts on both."""
