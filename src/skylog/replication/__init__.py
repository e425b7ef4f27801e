"""Replication as pure state: what a leader knows of its followers, and where a follower truncates its log."""

from skylog.replication.divergence import divergence, truncation_offset
from skylog.replication.leader_state import FollowerProgress, LeaderState

__all__ = ["FollowerProgress", "LeaderState", "divergence", "truncation_offset"]
