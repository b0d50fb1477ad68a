"""Whether what a spec says of a job's size, ranks and life holds together: elastic, roles, arrays, interactive."""

from gangline.events.amounts import milli_shown, size_shown, time_shown
from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI, Elastic, JobSpec, Role
from gangline.scheduler.rules.refusals import Refusal, refuse

MAX_ROLES = 16
MAX_ROLE_CHARACTERS = 64
MAX_ROLE_RANKS = 100_000
MAX_NOTIFIED = 8
MAX_URL_CHARACTERS = 2_000
"""Bindings repeat roles and URLs, and must stay within a record."""
DEFAULT_ROLE = "default"
"""What torchrun calls the role of ranks that have none."""


def check_options(policy: Policy, spec: JobSpec) -> Refusal | None:
    """Return what contradicts itself, or None."""
    return (
        _check_elastic(spec, spec.elastic)
        or _check_interactive(spec)
        or _check_roles(spec)
        or _check_array(policy, spec)
        or _check_rest(spec)
    )


def _check_elastic(spec: JobSpec, elastic: Elastic | None) -> Refusal | None:
    if elastic is None:
        return None
    least, most, step = elastic.min_gpus, elastic.max_gpus, elastic.step_gpus
    if least < 1:
        return refuse("elastic.min", least, "a gang has at least 1 GPU", "ask for 1 or more")
    if most < least:
        return refuse("elastic.min", least, f"it is above elastic.max, {most}", "lower the one or raise the other")
    if step < 1:
        return refuse("elastic.step", step, "a gang grows by at least 1 GPU", "name 1 or more")
    for key, value in (("gpus", spec.gpus), ("elastic.max", most)):
        if not least <= value <= most or (value - least) % step:
            limit = f"the sizes are {least} to {most} in steps of {step}"
            return refuse(key, value, limit, "name one of these, or other bounds")
    limit = "an elastic gang takes whole GPUs wherever they are free"
    if spec.gpu_milli < WHOLE_MILLI:
        return refuse("gpus", milli_shown(spec.gpu_milli), limit, "ask for whole ones, or leave elastic out")
    if spec.nodes is not None:
        return refuse("nodes", spec.nodes, limit, "leave the one or the other out")
    if not spec.preemptible:
        return refuse("preemptible", "false", "a resize stops an elastic gang", "allow it, or leave elastic out")
    return None


def _check_interactive(spec: JobSpec) -> Refusal | None:
    if spec.idle_timeout_us is not None and spec.idle_timeout_us <= 0:
        return refuse(
            "idle_timeout", time_shown(spec.idle_timeout_us), "it has to be more than 0", "name a time, or none"
        )
    if not spec.interactive:
        if spec.idle_timeout_us is not None:
            return refuse(
                "idle_timeout",
                time_shown(spec.idle_timeout_us),
                "only an interactive job has one",
                "let it be interactive, too, or leave it out",
            )
        return None
    if spec.gpus > 1:
        return refuse("gpus", spec.gpus, "an interactive job has at most one GPU", "ask for a part of one, or for 1")
    for key, given in (("elastic", spec.elastic is not None), ("roles", bool(spec.roles))):
        if given:
            return refuse(key, "given", "an interactive job is a single rank", "leave the one or the other out")
    return None


def _check_roles(spec: JobSpec) -> Refusal | None:
    if len(spec.roles) > MAX_ROLES:
        return refuse("roles", f"{len(spec.roles)} roles", f"a gang has at most {MAX_ROLES}", "name fewer")
    names = [role.name for role in spec.roles]
    for role in spec.roles:
        fault = _check_role(role)
        if fault is not None:
            return fault
        if names.count(role.name) > 1:
            return refuse("roles", repr(role.name), "another role has this name", "give each its own")
    if spec.roles and spec.elastic is not None:
        return refuse("elastic", "given", "a gang with roles keeps its size", "leave the one or the other out")
    return None


def _check_role(role: Role) -> Refusal | None:
    key = f"roles.{role.name[:MAX_ROLE_CHARACTERS]}"
    if not 0 < len(role.name) <= MAX_ROLE_CHARACTERS or not role.name.replace("-", "").replace("_", "").isalnum():
        limit = f"a role's name has 1 to {MAX_ROLE_CHARACTERS} letters, digits, '-' and '_'"
        return refuse("roles", repr(role.name), limit, "give another one")
    if role.name == DEFAULT_ROLE:
        return refuse("roles", repr(role.name), "that is the role of the GPUs' own ranks", "give another name")
    if not 0 < role.ranks <= MAX_ROLE_RANKS:
        return refuse(f"{key}.ranks", role.ranks, f"a role has 1 to {MAX_ROLE_RANKS} ranks", "name one of these")
    if not 0 <= role.gpu_milli <= WHOLE_MILLI:
        limit = "a rank of a role has at most one GPU"
        return refuse(f"{key}.gpus", milli_shown(role.gpu_milli), limit, "ask for 0 to 1")
    if role.cpu_milli < 0:
        return refuse(f"{key}.cpus", milli_shown(role.cpu_milli), "it has to be 0 or more", "ask for 0 or more")
    if role.memory_bytes < 0:
        return refuse(f"{key}.memory", size_shown(role.memory_bytes), "it has to be 0 or more", "ask for 0 or more")
    if role.command and (not role.command[0] or "\0" in "".join(role.command)):
        limit = "it has to name a program, and must not have a NUL character"
        return refuse(f"{key}.command", "no program", limit, "give program and arguments, or leave it out")
    return None


def _check_array(policy: Policy, spec: JobSpec) -> Refusal | None:
    if spec.array is not None and not 0 < spec.array <= policy.array_max:
        limit = f"an array has 1 to {policy.array_max} jobs (array_max of the policy)"
        return refuse("array", spec.array, limit, "submit several smaller ones")
    if spec.array_parallel is not None and spec.array is None:
        return refuse("array_parallel", spec.array_parallel, "the job is no array", "name array, too, or leave it out")
    if spec.array_parallel is not None and spec.array_parallel < 1:
        limit = "at least one of them has to run"
        return refuse("array_parallel", spec.array_parallel, limit, "name 1 or more, or leave it out for all")
    return None


def _check_rest(spec: JobSpec) -> Refusal | None:
    if spec.data_bytes < 0:
        return refuse("data", size_shown(spec.data_bytes), "it has to be 0 or more", "name 0 or more")
    if len(spec.notify) > MAX_NOTIFIED:
        return refuse("notify", f"{len(spec.notify)} URLs", f"a job tells at most {MAX_NOTIFIED}", "name fewer")
    for url in spec.notify:
        if not 0 < len(url) <= MAX_URL_CHARACTERS:
            limit = f"a URL has 1 to {MAX_URL_CHARACTERS} characters"
            return refuse("notify", f"{len(url)} characters", limit, "name a shorter one")
    return None
