"""Cases of randomised worlds: the same for a seed, the same from JSON, and small once they were shrunk."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gangline.simulator.fuzz.__main__ import main
from gangline.simulator.fuzz.generator import generate
from gangline.simulator.fuzz.plan import Plan, Submit, from_json, to_json
from gangline.simulator.fuzz.scene import Violation
from gangline.simulator.fuzz.shrink import shrunk
from gangline.simulator.fuzz.world import FuzzWorld, run


@pytest.mark.parametrize("seed", range(20))
def test_a_case_comes_back_from_its_json(seed: int) -> None:
    plan = generate(seed)
    assert from_json(to_json(plan)) == plan == generate(seed)


def test_a_case_runs_the_same_each_time() -> None:
    one, other = FuzzWorld(generate(7)), FuzzWorld(from_json(to_json(generate(7))))
    assert one.run() == other.run()
    assert one.core.control == other.core.control
    assert one.core.rounds == other.core.rounds


def test_seeds_reach_what_there_is_to_reach() -> None:
    ran = [run(generate(seed)) for seed in range(12)]
    assert sum(one.ended for one in ran) > 50
    assert sum(one.preemptions for one in ran) > 0


def fails_on_two_whole_gpus(plan: Plan) -> None:
    """Fail like an invariant that any job of two whole GPUs breaks."""
    for step in plan.steps:
        if isinstance(step, Submit) and step.spec.gpus >= 2:
            raise Violation("two_gpus", 0, step.spec.name)


def test_a_case_shrinks_to_what_is_needed_and_the_same_each_time() -> None:
    plan = next(plan for plan in map(generate, range(100)) if len(plan.steps) > 20)
    with pytest.raises(Violation) as raised:
        fails_on_two_whole_gpus(plan)
    small, violation = shrunk(fails_on_two_whole_gpus, plan, raised.value)
    (step,) = small.steps
    assert isinstance(step, Submit)
    assert (step.at_s, step.spec.gpus, step.spec.priority, step.spec.preemptible) == (0, 2, 0, True)
    assert len(small.machines) == 1
    assert violation.invariant == "two_gpus"
    assert shrunk(fails_on_two_whole_gpus, plan, raised.value)[0] == small


def test_a_case_in_a_file_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(to_json(replace(generate(3), ends_s=10)))
    assert main(["--replay", str(path)]) == 0
    assert "every invariant holds" in capsys.readouterr().out
