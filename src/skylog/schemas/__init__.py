"""Schemas of messages: parsing, compatibility, the wire format of a registry's clients, and a client of a registry."""
