"""The broker as a Kafka client sees it: real sockets, every API, every version."""
