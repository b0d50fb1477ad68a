"""Every command gets one answer, and gets it again when it is repeated."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from gangline.events import control
from gangline.events.decisions import AnswerRepeated, CommandExpired, CommandRefused
from gangline.events.ids import made_at_us
from gangline.events.policy import Policy
from gangline.events.types import SECOND_US, Decision, Event
from gangline.scheduler.errors import Halted
from gangline.scheduler.round import Round
from gangline.scheduler.rules import answer_jobs, answer_nodes, answer_queues
from gangline.scheduler.rules.refusals import Asked

_ANSWERS: Mapping[type, Callable[[Round, Policy, Asked, Any], tuple[Decision, ...]]] = MappingProxyType(
    {
        control.SubmitJob: answer_jobs.submit,
        control.CancelJob: answer_jobs.cancel,
        control.HoldJob: answer_jobs.hold,
        control.ReleaseJob: answer_jobs.release,
        control.RetryJob: answer_jobs.retry,
        control.ReprioritiseJob: answer_jobs.reprioritise,
        control.CordonNode: answer_nodes.cordon,
        control.UncordonNode: answer_nodes.uncordon,
        control.DrainNode: answer_nodes.drain,
        control.CheckNode: answer_nodes.check,
        control.SetQueue: answer_queues.set_queue,
        control.RemoveQueue: answer_queues.remove_queue,
    }
)
"""Each returns the answer and what belongs to it, which are in the round together or not at all."""


def decide(round_: Round) -> None:
    """Answer the waiting commands in their order on the log. Before there is a policy, only policies are answered."""
    for index, command in sorted(round_.state.commands.items()):
        if round_.policy is None and not isinstance(command, control.ActivatePolicy):
            continue
        if not round_.emit(*_answer(round_, index, command)):
            return


def _answer(round_: Round, index: int, command: Event) -> tuple[Decision, ...]:
    state, policy = round_.state, round_.policy
    command_id = command.meta.command_id
    if command_id is None:
        raise Halted(f"the command at control index {index} has no command_id")
    before = state.answers.get(command_id)
    if before is not None:
        first = before.control_index
        return (AnswerRepeated(command_id=command_id, control_index=index, first_control_index=first),)
    made_us = made_at_us(command_id)
    if made_us <= state.forgotten_at_us:
        return (CommandExpired(command_id=command_id, control_index=index),)
    if policy is not None and made_us > state.ticked_at_us + policy.ahead_limit_us:
        ahead_s = (made_us - state.ticked_at_us) // SECOND_US
        message = (
            f"this command was made {ahead_s} s ahead of the scheduler's clock, the limit is "
            f"{policy.ahead_limit_us // SECOND_US} s: set the clock of the machine that sent it, and send a new one"
        )
        return (CommandRefused(command_id=command_id, control_index=index, message=message),)
    asked = Asked(command_id, index)
    if isinstance(command, control.ActivatePolicy):
        return answer_queues.activate(round_, asked, command)
    answer = _ANSWERS.get(type(command))
    if answer is None or policy is None:
        raise Halted(f"there is no rule that answers {type(command).__name__}")
    return answer(round_, policy, asked, command)
