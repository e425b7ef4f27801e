"""Tables in databases, whose rows and offsets change together: SQLite, PostgreSQL, MongoDB."""
