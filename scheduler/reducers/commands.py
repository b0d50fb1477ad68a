"""Commands wait for the next round; answers take them away."""

from msgspec.structs import replace

from gangline.events.control import ActivatePolicy, SubmitJob
from gangline.events.decisions import (
    Answer,
    AnswerRepeated,
    CancelAccepted,
    CommandExpired,
    JobAdmitted,
    PolicyActivated,
)
from gangline.events.types import Event
from gangline.scheduler.errors import Halted, Inapplicable
from gangline.scheduler.journal import put_job, put_policy_changed
from gangline.scheduler.state import Answered, Job, State
from gangline.scheduler.worth import arrived


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
        spec = command.spec
        job = Job(
            job_id=decision.job_id,
            submitted=decision.control_index,
            spec=spec,
            admitted_us=state.now_us,
            pending_since_us=state.now_us,
            held=spec.held,
        )
        ranks = max(spec.gpus, 1)
        seen = arrived(
            state.seen,
            gpus=spec.gpus,
            gpu_milli=spec.gpu_milli,
            cpu_milli=spec.cpu_milli * ranks,
            memory_bytes=spec.memory_bytes * ranks,
            gpu_types=spec.gpu_types,
        )
        return put_job(
            state,
            job,
            seen=seen,
            pending=state.pending.set(job.job_id, True),  # noqa: FBT003 - a map used as a set
            placement_due=True,
        )
    if isinstance(decision, CancelAccepted):
        job = replace(state.jobs[decision.job_id], cancelled=True)
        touched = state.touched.set(job.job_id, True)  # noqa: FBT003 - a map used as a set
        return put_job(state, job, touched=touched)
    if isinstance(decision, PolicyActivated) and isinstance(command, ActivatePolicy):
        return put_policy_changed(replace(state, policy=command.policy, policy_is_new=True))
    return state
