"""The command line. Reaches a cluster through `client`, like any user; only `serve` builds a broker."""
