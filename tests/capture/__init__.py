"""Change capture, against a real PostgreSQL."""
