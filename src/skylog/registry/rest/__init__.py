"""The REST API of the registry, as Confluent's Schema Registry has it."""
