"""`skylog serve`: runs a broker. `command` has its options, `broker_server` runs it, `console_process` the console."""
