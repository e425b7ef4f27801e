"""Replication between brokers: the shell around the pure state of `skylog.replication`."""
