"""A replicated cluster under faults: producers and a consumer group work while brokers, links and disks fail.

`history.py` has what clients saw and the rules it must obey, `workload.py` the clients, `nemesis.py` the faults and
`replica_logs.py` the files of the brokers. SKYLOG_PROOF=full runs every cell of the matrix, SKYLOG_SEED repeats a run.
"""
