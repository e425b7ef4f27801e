"""The broker's side of security: listeners with TLS, logins, access control."""
