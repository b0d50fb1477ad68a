"""The identity of a log: made once, found at record 0 of `control` and of `decisions`."""

import time

from gangline.events import codec, ids
from gangline.events.control import LogCreated
from gangline.events.log import CONTROL, DECISIONS, Entry, Log, LogError, LogReplaced, LogTooNew, Record
from gangline.events.types import Meta

FORMAT = 1
"""What LogCreated states; a log of a higher format is refused."""


class LogAbsent(LogError):
    """There is no log here yet."""

    exit_code = 3


def create(log: Log, *, actor: str) -> str:
    """Give the log its identity if it has none, and return its log_id.

    Several processes may do so at once: the first record of `control` decides. A creation that was killed half-way is
    completed. Raises what `log_id` raises, LogAbsent apart.
    """
    if _first(log, CONTROL) is None:
        log.append(CONTROL, [_created(ids.uuid7().hex(), actor)])
    found = _identity(_first(log, CONTROL), CONTROL)
    if _first(log, DECISIONS) is None:
        log.append(DECISIONS, [_created(found, actor)])
    return log_id(log)


def log_id(log: Log) -> str:
    """Return the log_id that both topics name.

    Raises LogAbsent where there is none, LogReplaced if the topics belong to different logs, LogTooNew for a log in a
    format of a newer version of gangline.
    """
    control = _identity(_first(log, CONTROL), CONTROL)
    decisions = _identity(_first(log, DECISIONS), DECISIONS)
    if control != decisions:
        raise LogReplaced(
            f"'{CONTROL}' belongs to log {control}, but '{DECISIONS}' to log {decisions}: "
            "they are parts of different logs; restore both from the same copy"
        )
    return control


def _created(identity: str, actor: str) -> Entry:
    meta = Meta(event_id=ids.uuid7(), actor=actor, at_us=time.time_ns() // 1000)
    return Entry(identity.encode(), codec.encode(LogCreated(meta=meta, log_id=identity, format=FORMAT)))


def _first(log: Log, topic: str) -> Record | None:
    reader = log.reader(topic)
    try:
        for records in reader.read_to_end(1):
            return records[0]
        return None
    finally:
        reader.close()


def _identity(record: Record | None, topic: str) -> str:
    if record is None:
        raise LogAbsent(f"there is no log here: '{topic}' is empty; `gangline up` creates one")
    event = codec.decode(record.value)
    if not isinstance(event, LogCreated):
        raise LogReplaced(
            f"record 0 of '{topic}' is a {type(event).__name__}, where a log begins with LogCreated: "
            "its beginning is missing; restore the log from a copy"
        )
    if event.format > FORMAT:
        raise LogTooNew(
            f"the log is in format {event.format}, this version of gangline knows up to {FORMAT}: "
            "install the version that wrote it, or a later one"
        )
    return event.log_id
