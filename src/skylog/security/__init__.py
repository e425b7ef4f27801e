"""Who may do what: listeners, principals, logins and access rules as pure functions. Knows no sockets and no store."""
