"""Every command gets one answer, and gets it again when it is repeated."""

from gangline.events.control import ActivatePolicy, CancelJob, SubmitJob
from gangline.events.decisions import (
    Answer,
    AnswerRepeated,
    CancelAccepted,
    CommandExpired,
    CommandRefused,
    JobAdmitted,
    JobRejected,
    PolicyActivated,
    PolicyRefused,
)
from gangline.events.ids import job_id, made_at_us
from gangline.events.types import Event
from gangline.scheduler.errors import Halted
from gangline.scheduler.round import Round
from gangline.scheduler.rules.admission import admit, check_policy
from gangline.scheduler.rules.refusals import shown
from gangline.scheduler.state import State

_SECOND_US = 1_000_000


def decide(round_: Round) -> None:
    """Answer the waiting commands in their order on the log. Before there is a policy, only policies are answered."""
    for index, command in sorted(round_.state.commands.items()):
        if round_.policy is None and not isinstance(command, ActivatePolicy):
            continue
        if not round_.emit(_answer(round_, index, command)):
            return


def _answer(round_: Round, index: int, command: Event) -> Answer:
    state, policy = round_.state, round_.policy
    command_id = command.meta.command_id
    if command_id is None:
        raise Halted(f"the command at control index {index} has no command_id")
    before = state.answers.get(command_id)
    if before is not None:
        return AnswerRepeated(command_id=command_id, control_index=index, first_control_index=before.control_index)
    made_us = made_at_us(command_id)
    if made_us <= state.forgotten_at_us:
        return CommandExpired(command_id=command_id, control_index=index)
    if policy is not None and made_us > state.ticked_at_us + policy.ahead_limit_us:
        ahead_s = (made_us - state.ticked_at_us) // _SECOND_US
        return CommandRefused(
            command_id=command_id,
            control_index=index,
            message=f"this command was made {ahead_s} s ahead of the scheduler's clock, the limit is "
            f"{policy.ahead_limit_us // _SECOND_US} s: set the clock of the machine that sent it, and send a new one",
        )
    if isinstance(command, SubmitJob) and policy is not None:
        new_job = job_id(state.log_id, command_id)
        if new_job in state.jobs or new_job in state.arrays or new_job in state.ended:
            return CommandExpired(command_id=command_id, control_index=index)
        refusal = admit(round_, policy, new_job, command.spec)
        if refusal is None:
            return JobAdmitted(command_id=command_id, control_index=index, job_id=new_job)
        return JobRejected(
            command_id=command_id,
            control_index=index,
            key=refusal.key,
            value=refusal.value,
            limit=refusal.limit,
            message=refusal.message,
        )
    if isinstance(command, CancelJob):
        return _answer_cancel(state, index, command_id, command)
    if isinstance(command, ActivatePolicy):
        fault = check_policy(command.policy)
        if fault is None:
            return PolicyActivated(command_id=command_id, control_index=index)
        return PolicyRefused(command_id=command_id, control_index=index, message=fault)
    raise Halted(f"there is no rule that answers {type(command).__name__}")


def _answer_cancel(state: State, index: int, command_id: bytes, command: CancelJob) -> Answer:
    if command.job_id in state.jobs or command.job_id in state.arrays:
        return CancelAccepted(command_id=command_id, control_index=index, job_id=command.job_id)
    outcome = state.ended.get(command.job_id)
    if outcome is None:
        message = (
            f"there is no job '{shown(command.job_id)}' that could be cancelled: `gangline jobs` lists those there are"
        )
    else:
        message = f"job '{command.job_id}' has already ended ({outcome}): there is nothing left to cancel"
    return CommandRefused(command_id=command_id, control_index=index, message=message)
