"""The mix is measured seed by seed, under the names that programs read."""

import json

import pytest

from benchmarks import mix
from benchmarks.__main__ import main
from gangline.simulator import mix as workload

NAMES = {
    "allocation_pct",
    "useful_pct",
    "idle_pct",
    "claims_p99_s",
    "gang_claims_p99_s",
    "gangs_first_start_24h_pct",
    "gangs_total_24h_pct",
    "small_mean_s",
    "small_p99_s",
    "preemptions_per_job",
}


@pytest.mark.slow
def test_every_figure_is_the_mean_of_its_seeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mix, "QUICK_DAYS", workload.SETTLING_DAYS + 1)
    assert main(["mix", "--quick", "--seeds", "3", "--load", "0.1", "--json"]) == 0
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    assert set(figures) == {f"mix.{name}" for name in NAMES}
    assert all(figure["goal"] is not None and "1 seeds" in figure["reference"] for figure in figures.values())
    assert 0 < figures["mix.useful_pct"]["value"] <= figures["mix.allocation_pct"]["value"] <= 100
