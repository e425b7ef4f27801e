"""Reads topics as DataFrames: `spark.read` and `spark.readStream`."""
