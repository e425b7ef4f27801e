"""The schema registry: Confluent's REST API over a compacted topic.

`state` and `changes` are pure: records in, records out. `log` reads and writes the topic and elects the registry that
writes, `registry` joins them, and `rest` is the API. Imports are lazy: `skylog serve` needs only the settings.
"""
