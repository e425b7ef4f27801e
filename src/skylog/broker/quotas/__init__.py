"""Quotas of clients on a running broker: follows them, measures what requests use, holds connections."""
