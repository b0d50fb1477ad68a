"""A policy is shown as the file that activates it; what is wrong in a file is told by line, table and key."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gangline.cli.policy_file import read_policy
from gangline.cli.policy_text import changes, fields, policy_text
from gangline.events.policy import RULES, Policy, Queue, Quota
from gangline.events.types import HOUR_US
from gangline.scheduler.rules.policy_checks import fault_of
from tests.cli.invoke import Gangline, document
from tests.cli.running import Up, until, up

TREE = (
    Queue(path="vision", quotas=(Quota(guarantee_milli=8_500, ceiling_milli=16_000, weight=2),)),
    Queue(path="vision/big cars", quotas=(Quota(weight=3), Quota(gpu_type="H100 80GB", guarantee_milli=0, weight=1))),
    Queue(path="speech", quotas=(Quota(),)),
)
PAGE = Path(__file__).parents[2] / "docs/policy.md"
POLICIES = {
    "the default": Policy(queues=(Queue(path="default", quotas=(Quota(),)),)),
    "a tree with types": Policy(queues=TREE),
    "odd numbers": Policy(
        queues=TREE,
        half_life_us=1_500_001,
        levels_us=(),
        spare_nodes=3,
        head_blocks=True,
        order="submission",
        rules=RULES[:2],
        data_heavy_bytes=1_000_001,
        min_runtime_us=0,
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_shown_is_read_as_the_same_policy(name: str) -> None:
    policy = POLICIES[name]
    read = read_policy(tomllib.loads(policy_text(policy)))
    assert msgspec.structs.replace(read, queues=()) == msgspec.structs.replace(policy, queues=())
    assert sorted(read.queues, key=lambda queue: queue.path) == sorted(policy.queues, key=lambda queue: queue.path)
    assert not list(changes(policy, read))


def documented() -> dict[str, str]:
    """Return the fields that the page has in its tables, with the default that it gives."""
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len({key for key, _ in rows})
    return dict(rows)


def test_the_page_has_every_field_of_a_policy_with_its_default() -> None:
    now, said = fields(Policy()), documented()
    del now["rules"]
    assert sorted(said) == sorted(now)
    different = {key: f"the page says {said[key]}, the default is {now[key]}" for key in now if said[key] != now[key]}
    assert not different, f"mend {PAGE}"


@pytest.mark.parametrize("rule", RULES)
def test_the_page_has_a_sentence_for_every_rule(rule: str) -> None:
    assert re.search(rf"^\| `{rule}` \| \w[^|]+\. \|$", PAGE.read_text(), re.MULTILINE)


def test_the_page_s_example_is_a_policy() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    read = read_policy(tomllib.loads(example))
    assert "fill" not in read.rules
    assert fault_of(read) is None


def test_what_changes_is_told_by_key_and_queue() -> None:
    before = Policy(queues=TREE)
    after = Policy(
        queues=(TREE[0], Queue(path="vision/roads"), Queue(path="speech", quotas=(Quota(ceiling_milli=4_000),))),
        half_life_us=12 * HOUR_US,
        spare_nodes=2,
    )
    assert list(changes(before, after)) == [
        'half_life: "1d" -> "12h"',
        "spare_nodes: 0 -> 2",
        "queue speech: nothing stated -> ceiling 4",
        "queue vision/big cars: removed",
        "queue vision/roads: added (nothing stated)",
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("governed") / "home", "--gpus", "4") as running:
        yield running


@pytest.fixture
def governed(gangline: Gangline, cluster: Up, monkeypatch: pytest.MonkeyPatch) -> Gangline:
    monkeypatch.setenv("GANGLINE_HOME", str(cluster.home))
    return gangline


@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
def test_a_policy_is_checked_then_activated_and_queues_show_it(governed: Gangline, tmp_path: Path) -> None:
    shown = governed("policy", "show")
    assert shown.code == 0
    file = tmp_path / "policy.toml"
    file.write_text(shown.out)
    assert "it says the same as the policy in force" in governed("policy", "activate", file, "--dry-run").out
    tree = "[queues.default]\nguarantee = 1\nceiling = 3\n[queues.vision]\nguarantee = 3\n"
    file.write_text(tree)
    said = document(governed, "policy", "activate", file, "--dry-run")
    assert said["changes"] == [
        "queue default: nothing stated -> guarantee 1, ceiling 3",
        "queue vision: added (guarantee 3)",
    ]
    assert document(governed, "policy", "show") == document(governed, "policy", "show")
    said = document(governed, "policy", "activate", file)
    assert said["answer"] == "PolicyActivated"
    ran = governed("submit", "--gpus", 2, "--grace", "1s", "--json", "--", "sleep", "600")
    job = json.loads(ran.out)["job_id"]
    until(lambda: document(governed, "why", job)["standing"] == "running", "a start")
    ran = governed("queues", "--after", json.loads(ran.out)["decided_index"])
    assert "COULD START NOW" in ran.out
    rows = {row["queue"]: row for row in document(governed, "queues")}
    (of_type,) = rows["default"]["types"]
    assert (of_type["guarantee_milli"], of_type["ceiling_milli"]) == (1_000, 3_000)
    assert (of_type["use_milli"], of_type["borrowed_milli"], of_type["could_start_milli"]) == (2_000, 1_000, 1_000)
    assert rows["vision"]["types"][0]["lent_milli"] == 1_000
    file.write_text("[queues.vision]\n")
    ran = governed("policy", "activate", file, "--dry-run")
    assert (ran.code, ran.out) == (4, "")
    assert f"queue 'default' would be gone while jobs that have not ended are in it, such as {job}" in ran.err
    ran = governed("policy", "activate", file)
    assert ran.code == 4
    assert f"queue 'default' would be gone while a job ({job}) that has not ended is in it" in ran.err
    assert governed("job", "cancel", job).code == 0


WRONG = {
    "an orphan": ('[queues.a]\n[queues."b/c"]\n', ":2: queues.b/c: queue 'b/c' is an orphan: there is no queue 'b'"),
    "children guaranteed more than their parent": (
        '[queues.a]\nceiling = 9\nguarantee = 4\n[queues."a/b"]\nguarantee = 3\n[queues."a/c"]\nguarantee = 2\n',
        ":3: queues.a.guarantee: the queues below 'a' are guaranteed 5 GPUs together ('a/b' 3, 'a/c' 2), more than its",
    ),
    "children guaranteed more than those above leave their parent": (
        '[queues.a]\nguarantee = 4\n[queues."a/b"]\n[queues."a/b/c"]\nguarantee = 3\n[queues."a/d"]\nguarantee = 2\n',
        ":3: queues.a/b.guarantee: the queues below 'a/b' are guaranteed 3 GPUs together ('a/b/c' 3), more than what ",
    ),
    "a ceiling below the guarantee": (
        "[queues.a]\n[queues.a.types.H100]\nguarantee = 4\nceiling = 2\n",
        ":4: queues.a.types.H100.ceiling: queue 'a' has a ceiling of 2 GPUs of H100, below its guarantee of 4",
    ),
    "a queue of no weight": ("[queues.a]\nweight = 0\n", ":2: queues.a.weight: queue 'a' has the weight 0: name 1"),
    "a queue twice": ("[queues.a]\n[queues.a]\n", ":2:"),
    "no queue at all": ("[queues]\n", "a policy has at least one queue: add one"),
    "times that contradict each other": (
        '[policy]\nprotection_from = "25h"\n',
        ":2: policy.protection_from: protection_from is 25h, above protection_until",
    ),
    "a time that contradicts a default": (
        '[policy]\nhead_blocks = true\nreservation_hard = "1s"\n',
        ":3: policy.reservation_hard: reservation_after is ",
    ),
    "a number beyond what it may be": (
        "[policy]\nretries = 5000\n",
        ":2: policy.retries: this is 5,000, but has to be",
    ),
    "a part of a job": ("[policy]\nmoves_max = 1.5\n", ":2: policy.moves_max: this is a whole number, not 1.5"),
    "a rule that there is not": ('[policy]\nwithout = ["luck"]\n', ":2: policy.without[0]: "),
    "a key that there is not": ("[policy]\nhalflife = 3\n", ":2: policy.halflife: "),
    "a time without a unit": ("[policy]\nhalf_life = 3\n", ":2: policy.half_life: "),
    "a table that there is not": ("[polices]\n", ":1: polices: "),
}


@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("name", WRONG)
def test_a_file_is_refused_by_line_and_key(name: str, governed: Gangline, tmp_path: Path) -> None:
    text, message = WRONG[name]
    file = tmp_path / "policy.toml"
    file.write_text(text)
    ran = governed("policy", "activate", file)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
def test_a_file_that_there_is_not_is_named(governed: Gangline) -> None:
    ran = governed("policy", "activate", "nowhere.toml")
    assert ran.code == 3
    assert "nowhere.toml" in ran.err
