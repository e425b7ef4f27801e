"""Topics as Spark tables and streams: the data source `skylog`. pyspark is imported here and nowhere else.

Nothing is imported in advance: executors load only the modules that read.
"""
