"""The GDPO example's README explains every number that people watch, by the name that they see."""

from __future__ import annotations

import re
from pathlib import Path

from relax.algorithms.spec import list_algorithm_names
from relax.core.record import SHOWN
from relax.progress.numbers import WATCHED
from relax.progress.watch import NUMBERED
from relax.rollout.metrics import reward_metrics
from tests.runtime.in_process import tiny
from tests.runtime.test_gdpo_example import ROOT

SECTION = re.search(
    r"## What it shows\n(.*?)\n## ", (Path(ROOT) / "examples" / "gdpo" / "README.md").read_text(), re.DOTALL
)


def explained() -> dict[str, str]:
    """Metric to its name on the terminal, as the table has them."""
    assert SECTION is not None
    rows = re.findall(r"^\| ([^|]*)\| `([^`]*)` \|", SECTION[1], re.MULTILINE)
    return {metric.replace("…", ""): name.strip().removesuffix(", …") for name, metric in rows}


def test_watched() -> None:
    """All that the terminal shows of a rollout is there, under its name."""
    of_rollouts = {metric: name for metric, name in WATCHED if not metric.startswith(("supervised", "evaluation"))}
    found = explained()
    assert of_rollouts.keys() <= found.keys()
    assert all(found[metric].startswith(name) for metric, name in of_rollouts.items())


def test_counts_of_groups() -> None:
    """So is each count of prompt groups, of every algorithm, and what else a rollout is watched by."""
    names = {name for algorithm in list_algorithm_names() for name in reward_metrics(tiny(algorithm), [])}
    columns = {f"rollout/{name}" for name in {*names, *SHOWN}}
    families = tuple(metric for metric in explained() if metric.endswith("/"))
    assert {column for column in columns if not column.startswith(families)} <= explained().keys()


def test_files() -> None:
    """And the files that hold them."""
    assert SECTION is not None
    assert all(f"`{name}`" in SECTION[1] for name in (*NUMBERED, "rewards.png"))
