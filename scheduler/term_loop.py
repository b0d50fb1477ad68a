"""Opens a term for this code, from the end of what the term before has decided."""

import logging
from collections.abc import Callable

from gangline.events.codec import encode
from gangline.events.decisions import TermOpened
from gangline.events.ids import uuid7
from gangline.events.log import DECISIONS, Entry, Log
from gangline.events.types import Meta
from gangline.scheduler.canonical import digest, to_bytes
from gangline.scheduler.follow_loop import Follower
from gangline.scheduler.migrate import migrate
from gangline.scheduler.state import State

logger = logging.getLogger(__name__)


class TermOpener:
    """Opens a term as soon as it can, and says once for each term why it cannot."""

    def __init__(
        self, log: Log, follower: Follower, *, code_digest: str, wheel: str | None, allowed: bool, actor: str
    ) -> None:
        """Open nothing unless `allowed`."""
        self._log = log
        self._follower = follower
        self._code_digest = code_digest
        self._wheel = wheel
        self._allowed = allowed
        self._actor = actor
        self._told: tuple[object, ...] = ()

    def stand_by(self, wall_us: Callable[[], int]) -> None:
        """Open a term if that is allowed and the boundary is there. Somebody else may be faster; then this one is void.

        Raises Halted for a boundary that this code cannot migrate, and what the log raises.
        """
        follower = self._follower
        if not self._allowed:
            whose = f"term {follower.terms.term} belongs to code {follower.term_code[:12]}"
            self._tell(
                f"{whose if follower.term_code else 'no term is open'}, this is {self._code_digest[:12]}: "
                "standing by; start with --open-term to open a term for it"
            )
            return
        follower.read_all_decisions()
        if not follower.foreign:
            return
        opened = self._opened(wall_us())
        if opened is not None:
            self._log.append(DECISIONS, [Entry(b"", encode(opened))])
            follower.read_all_decisions()
            if follower.term_code == self._code_digest:
                logger.info("term %d is open", follower.terms.term)

    def _opened(self, at_us: int) -> TermOpened | None:
        """Return what would open the next term now; None while the boundary is missing."""
        terms = self._follower.terms
        boundary_sha256, state = None, to_bytes(State())
        if terms.decided >= 0:
            boundary = self._follower.boundary()
            if boundary is None:
                self._tell(
                    f"waiting for the boundary of term {terms.term} at control index {terms.decided}: stop the "
                    f"scheduler of that term (code {self._follower.term_code[:12]}) with SIGTERM, or if it is gone, "
                    "run `gangline scheduler --boundary` with its version"
                )
                return None
            boundary_sha256, state = boundary.header.state_sha256, migrate(boundary.state)
        return TermOpened(
            meta=Meta(event_id=uuid7(), actor=self._actor, at_us=at_us),
            term=terms.term + 1,
            previous=terms.term,
            control_index=terms.decided,
            code_digest=self._code_digest,
            wheel=self._wheel,
            boundary_sha256=boundary_sha256,
            state_sha256=digest(state),
        )

    def _tell(self, message: str) -> None:
        # While the term before goes on deciding, its end moves with every round.
        told = (self._follower.terms.term, self._follower.term_code)
        if told != self._told:
            self._told = told
            logger.warning(message)
