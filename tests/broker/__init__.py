"""The broker as a Kafka client meets it: real sockets, every API, every version."""
