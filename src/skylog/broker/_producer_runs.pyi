from skylog.broker.producer_runs import Run

def take_run(
    view: memoryview,
    position: int,
    end: int,
    version: int,
    key: bytes,
    form: bytes,
    offset_at: int,
    offset: int,
    epoch: int,
    start_offset: int,
    max_bytes: int,
    /,
) -> Run | None: ...
