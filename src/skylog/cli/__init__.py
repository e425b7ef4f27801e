"""The command line. Commands access a cluster through `client`, as applications do. Only `serve` creates a broker."""
