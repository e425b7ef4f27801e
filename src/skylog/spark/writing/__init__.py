"""Writes DataFrames to topics: `df.write` and `df.writeStream`."""
