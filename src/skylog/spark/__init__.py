"""Topics as Spark tables and streams: the data source `skylog`. Only this package imports pyspark.

This module imports nothing, so executors load only the modules they need.
"""
