"""Delta Lake tables: Spark's executors write Parquet files, and one commit adds them together with the offsets."""
