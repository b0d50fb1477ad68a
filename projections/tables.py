"""The SQL tables: what each holds, and its key. Every value is an integer or text, so both databases hold the same.

An `_index` is a record's index on `control`; what was decided has the index of its round's tick. An `_at_us` is the
clock of whoever wrote that record, in microseconds since 1970. JSON is text in canonical form.
"""

from sqlalchemy import BigInteger, Column, Index, MetaData, Table, Text

TABLES_VERSION = 4
"""Raised with every change of a table; tables of another version are rebuilt (`gangline projector --rebuild`)."""

metadata = MetaData()

# The same order in both databases, whatever the locale of the server: SQLite compares bytes by itself.
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def _key(name: str, *, number: bool = False) -> Column[object]:
    return Column(name, BigInteger if number else _TEXT, primary_key=True, autoincrement=False)


def _text(name: str) -> Column[object]:
    return Column(name, _TEXT)


def _number(name: str) -> Column[object]:
    return Column(name, BigInteger)


jobs = Table(
    "jobs",
    metadata,
    _key("job_id"),
    _text("command_id"),
    _text("actor"),
    _text("name"),
    _text("queue"),
    _text("state"),
    _number("gpus"),
    _number("gpus_min"),
    _number("gpus_max"),
    _number("gpus_now"),
    _number("gpu_milli"),
    _number("nodes"),
    _text("gpu_types"),
    _number("priority"),
    _text("spec"),
    _number("attempts"),
    _number("failures_in_row"),
    _number("preemptions"),
    _number("moves"),
    _number("held"),
    _text("array_id"),
    _number("array_index"),
    _number("array_size"),
    _text("cause"),
    _number("submitted_index"),
    _number("submitted_at_us"),
    _number("admitted_index"),
    _number("admitted_at_us"),
    _number("ended_index"),
    _number("ended_at_us"),
)
"""One row a job: state is submitted (no answer yet), pending, running, stopping, succeeded, failed or cancelled.

`gpus_min` and `gpus_max` are null but for elastic jobs; `gpus_now` is what its live attempt has, null without one.
`held` is 1 while its user keeps it from starting. An array has a row, with `array_size`, and so has each of its jobs,
with `array_id`.
"""

Index("jobs_by_submission", jobs.c.submitted_index)
Index("jobs_by_command", jobs.c.command_id)
Index("jobs_by_array", jobs.c.array_id)

attempts = Table(
    "attempts",
    metadata,
    _key("job_id"),
    _key("attempt", number=True),
    _text("state"),
    _number("world_size"),
    _text("master_address"),
    _number("master_port"),
    _number("resume_step"),
    _number("bound_index"),
    _number("bound_at_us"),
    _text("stop_reason"),
    _text("stop_claimant"),
    _number("stop_index"),
    _number("stop_at_us"),
    _text("outcome"),
    _text("cause"),
    _number("ended_index"),
    _number("ended_at_us"),
)
"""One row an attempt: state is bound, stopping, preempted or ended; `stop_claimant` is the job that it gave way to."""

rooms = Table(
    "rooms",
    metadata,
    _key("job_id"),
    _key("kind"),
    _text("reason"),
    _text("node_ids"),
    _number("gpu_count"),
    _number("since_index"),
    _number("since_at_us"),
    _number("until_us"),
)
"""One row what a pending job has set aside: shares held for it (`held`) or nodes reserved (`reserved`).

`until_us` is the core time at which a hold lapses, or at which the reserved nodes are expected to be free.
"""

placements = Table(
    "placements",
    metadata,
    _key("job_id"),
    _key("attempt", number=True),
    _key("first_rank", number=True),
    _text("node_id"),
    _text("role"),
    _number("rank_count"),
    _text("address"),
    _text("gpus"),
    _number("gpu_count"),
    _number("gpu_milli"),
    _number("cpu_milli"),
    _number("memory_bytes"),
    _number("started_index"),
    _number("started_at_us"),
    _text("run_dir"),
    _text("exits"),
    _text("failure"),
    _number("gone_index"),
    _number("gone_at_us"),
)
"""One row a node's share of an attempt; it holds its GPUs until `gone_index` is set."""

Index("placements_by_node", placements.c.node_id, placements.c.gone_index)

nodes = Table(
    "nodes",
    metadata,
    _key("node_id"),
    _text("boot_id"),
    _text("agent_id"),
    _text("address"),
    _text("pod"),
    _text("gpu_type"),
    _number("gpu_count"),
    _text("gpus"),
    _number("cpu_milli"),
    _number("memory_bytes"),
    _number("registered_index"),
    _number("registered_at_us"),
    _number("lost"),
    _number("cordoned"),
    _number("draining"),
    _text("cordon_reason"),
    _number("quarantined"),
    _number("quarantined_until_us"),
    _text("quarantine_reason"),
    _text("broken_gpus"),
    _number("check_index"),
    _number("healthy"),
    _text("report"),
    _number("checked_at_us"),
)
"""One row a node, as it registered last, and why nothing starts there if nothing does (1 for yes, 0 for no).

`check_index` is the command that asked last to examine it; `healthy` is null until its agent has reported.
`quarantined_until_us` is core time, null for until an operator says so.
"""

checkpoints = Table(
    "checkpoints",
    metadata,
    _key("job_id"),
    _key("step", number=True),
    _key("manifest_sha256"),
    _number("attempt"),
    _text("uri"),
    _number("size_bytes"),
    _text("state"),
    _text("reason"),
    _number("uploaded_index"),
    _number("uploaded_at_us"),
    _number("decided_index"),
    _number("decided_at_us"),
)
"""One row a checkpoint: state is uploaded, committed, refused, or rejected (it did not verify when it was needed)."""

answers = Table(
    "answers",
    metadata,
    _key("control_index", number=True),
    _text("command_id"),
    _text("kind"),
    _text("job_id"),
    _text("key"),
    _text("value"),
    _text("limit"),
    _text("message"),
    _number("tick_index"),
    _number("at_us"),
)
"""One row an answered command, `control_index` being the command's record."""

Index("answers_by_command", answers.c.command_id)

commands = Table(
    "commands",
    metadata,
    _key("control_index", number=True),
    _text("command_id"),
    _text("actor"),
    _text("kind"),
    _text("subject"),
    _text("reason"),
    _text("detail"),
    _number("at_us"),
    _number("accepted_index"),
)
"""One row a command about a node, a job or a queue (`subject`); `accepted_index` is null for one that was refused."""

Index("commands_by_subject", commands.c.subject)

policies = Table(
    "policies",
    metadata,
    _key("control_index", number=True),
    _text("command_id"),
    _text("policy"),
    _number("activated_index"),
)
"""One row a policy that was asked for, as a whole or by a command about a queue.

In force is the one with the highest `activated_index`, and of those the one with the highest `control_index`.
"""

queues = Table("queues", metadata, _key("path"), _text("quotas"), _number("policy_index"))
"""One row a queue of the policy in force."""

timeline = Table(
    "timeline",
    metadata,
    _key("control_index", number=True),
    _key("ordinal", number=True),
    _text("job_id"),
    _number("attempt"),
    _text("node_id"),
    _text("kind"),
    _text("detail"),
    _number("at_us"),
)
"""What happened to jobs, in order: an input at its own index (ordinal 0), decisions at their tick's (from 1 on)."""

Index("timeline_by_job", timeline.c.job_id, timeline.c.control_index, timeline.c.ordinal)

positions = Table(
    "positions",
    metadata,
    _key("name"),
    _text("log_id"),
    _number("tables_version"),
    _number("control_index"),
    _number("control_offset"),
    _number("decisions_index"),
    _number("decisions_offset"),
    _number("term"),
    _number("decided"),
    _number("tick_at_us"),
)
"""One row, written with the rows that it covers: what has been read, and the terms there."""

PROJECTED = (jobs, attempts, rooms, placements, nodes, checkpoints, answers, commands, policies, queues, timeline)
"""What follows from the log, and so what a digest covers."""
