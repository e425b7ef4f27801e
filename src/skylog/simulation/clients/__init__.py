"""Simulated clients. They speak Kafka's protocol as Java's clients do, through `net.peer`, and note what they see."""
