"""The demo behind `skylog demo`: a broker, a website that sends events, a consumer group and three Spark jobs.

`run` starts, watches and stops the parts. `website` and `traffic` create events. `newsfeed` and `pipeline`, a process
that runs `driver`, read them. `figures` and `summary` show the progress. `final_audit` compares the counts at the end.
"""
