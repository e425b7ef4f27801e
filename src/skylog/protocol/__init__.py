"""Kafka's wire format: primitives, headers, and one declaration per message for all its versions.

Bytes in, objects out, and back; no sockets, no clocks, no state. `apis.API_SPECS` lists what can be decoded.
"""
