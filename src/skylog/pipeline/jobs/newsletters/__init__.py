"""The job `newsletters`: a daily digest for each subscriber, as a topic; and a consumer that sends them by mail.

    newsletters_job("127.0.0.1:9092", "pages", "users").run(spark, once=True)

`digests` is the job's transform. The consumer is `skylog.pipeline.jobs.newsletters.sender`; it needs no Spark.
"""
