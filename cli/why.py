"""Asks the core why a job waits, from the state that the log gives."""

from gangline.cli.place import Place


def why(place: Place, job_id: str) -> str | None:
    """Return what keeps a job waiting; None where the deciding code is another version than this one."""
    from gangline.events import identity
    from gangline.scheduler.code_store import code_digest
    from gangline.scheduler.explain import explain
    from gangline.scheduler.follow_loop import Follower
    from gangline.scheduler.snapshot_store import SnapshotStore

    log = place.open_log()
    try:
        store = SnapshotStore(place.home / "snapshots", identity.log_id(log))
        follower = Follower(log, store, code_digest())
        follower.close()
        return None if follower.foreign else explain(follower.state, job_id)
    finally:
        log.close()
