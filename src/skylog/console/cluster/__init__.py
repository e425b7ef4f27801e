"""Connections to the cluster and to the parent broker, and requests that several pages share."""
