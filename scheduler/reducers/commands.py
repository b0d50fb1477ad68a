"""Commands wait for the next round; answers take them away."""

from msgspec.structs import replace

from gangline.events.control import ActivatePolicy, SubmitJob
from gangline.events.decisions import (
    Answer,
    AnswerRepeated,
    CancelAccepted,
    CommandAccepted,
    CommandExpired,
    JobAdmitted,
    PolicyActivated,
)
from gangline.events.types import Event
from gangline.scheduler.arrays import members
from gangline.scheduler.errors import Halted, Inapplicable
from gangline.scheduler.journal import put_job
from gangline.scheduler.reducers.admission import admitted
from gangline.scheduler.reducers.operators import accepted, in_force
from gangline.scheduler.state import Answered, State


def command_received(state: State, event: Event) -> State:
    """Keep a command until a round answers it."""
    if event.meta.command_id is None:
        raise Inapplicable(f"{type(event).__name__} has no command_id")
    return replace(state, commands=state.commands.set(state.control_index, event))


def answered(state: State, decision: Answer) -> State:
    """Take the command away, remember that it was answered, and do what the answer says."""
    command = state.commands.get(decision.control_index)
    if command is None or command.meta.command_id != decision.command_id:
        raise Halted(
            f"a round answers a command at control index {decision.control_index} that does not wait there: "
            "the two topics do not belong together"
        )
    state = replace(state, commands=state.commands.delete(decision.control_index))
    if isinstance(decision, AnswerRepeated | CommandExpired):
        return state
    job_id = decision.job_id if isinstance(decision, JobAdmitted | CancelAccepted) else None
    state = replace(
        state,
        answers=state.answers.set(
            decision.command_id,
            Answered(
                control_index=decision.control_index,
                at_us=state.now_us,
                job_id=job_id if isinstance(decision, JobAdmitted) else None,
            ),
        ),
        answer_order=state.answer_order.set(state.answers_next, decision.command_id),
        answers_next=state.answers_next + 1,
    )
    if isinstance(decision, JobAdmitted) and isinstance(command, SubmitJob):
        return admitted(state, decision.job_id, decision.control_index, command.spec)
    if isinstance(decision, CancelAccepted):
        return _cancelled(state, decision.job_id)
    if isinstance(decision, PolicyActivated) and isinstance(command, ActivatePolicy):
        return in_force(state, command.policy)
    return accepted(state, command) if isinstance(decision, CommandAccepted) else state


def _cancelled(state: State, job_id: str) -> State:
    """Cancel a job, or every one of an array."""
    array = state.arrays.get(job_id)
    if array is not None:
        state = replace(state, arrays=state.arrays.set(job_id, replace(array, cancelled=True)))
    for member in members(state, job_id):
        touched = state.touched.set(member, True)  # noqa: FBT003 - a map used as a set
        state = put_job(state, replace(state.jobs[member], cancelled=True), touched=touched)
    return state
