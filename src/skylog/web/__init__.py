"""What the HTTP servers share, the console and the registry: their sockets, and who may do what."""
