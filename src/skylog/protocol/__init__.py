"""Kafka's wire format: primitives, headers, and one declaration per message for all its versions.

Converts bytes to objects and back; no sockets, clocks or state. `apis.API_SPECS` lists the supported APIs.
"""
