"""Mirroring: copies topics and group offsets of another cluster, at the same offsets. See `replication.mirror`."""
