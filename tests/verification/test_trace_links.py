"""The stages of a trace as a chain: a value that changed on the way from one stage to the next is found and named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from relax.core.rows import row_keys
from relax.core.trace import keep, seal_trace, start_trace, tracing
from relax.types import Sample
from tests.verification.traces import ADVANTAGES, reseal, write_trace
from verification.cases.arguments import namespace
from verification.cli import main
from verification.traced.cases import whole_calls
from verification.traced.links import links
from verification.traced.read import TraceRefused, read_trace

ROWS = row_keys(3, range(4))
REWARDS = [0.25, -0.0, 1.0, 0.1]


class Chain:
    """A run's trace of four samples of rollout 3, through all stages; each value may be changed before it is kept."""

    def __init__(self) -> None:
        self.estimated = [torch.full((length,), reward) for length, reward in zip((1, 2, 0, 3), REWARDS, strict=True)]
        self.normalized = [tokens * 2 for tokens in self.estimated]
        self.taken_rewards = list(REWARDS)
        self.taken_by_normalize = [tokens.clone() for tokens in self.estimated]
        self.taken_by_loss = [tokens.clone() for tokens in self.normalized]
        self.rows: Sequence[str] | None = ROWS
        self.losses = [[2, 0], [1, 3]]  # micro-batches

    def write(self, folder: Path) -> Path:
        """Keeps the calls."""
        args = namespace("grpo")
        args.trace_rollout, args.trace_folder = 3, str(folder)
        start_trace(args)
        samples = [Sample(index=i, group_index=0, reward=reward) for i, reward in enumerate(REWARDS)]
        with tracing(args, [3], "all"):
            keep("reward.normalize", args, {"samples": samples}, {"raw_rewards": REWARDS, "rewards": REWARDS})
            results = {"advantages": self.estimated, "returns": self.estimated}
            keep("advantage.estimate", args, {"rewards": self.taken_rewards}, results, rows=self.rows)
            given = {"advantages": self.taken_by_normalize, "loss_masks": None}
            keep("advantage.normalize", args, given, {"advantages": self.normalized}, rows=ROWS)
            for positions in self.losses:
                given = {"advantages": [self.taken_by_loss[position] for position in positions]}
                keep("policy.loss", args, given, {}, rows=[ROWS[position] for position in positions])
        seal_trace(args)
        return folder

    def differences(self, folder: Path) -> list[tuple[str, str, str]]:
        """Stage, the stage before it, and what differs."""
        trace = read_trace(self.write(folder))
        found = links(trace.rollout, whole_calls(trace))
        assert len(found) == 3 * len(ROWS)
        return [(one.stage, one.against, f"{one.what}: {one.detail}") for one in found if not one.agrees]


def test_whole(tmp_path: Path) -> None:
    """Each sample is followed through three pairs of stages, whatever micro-batch it is in."""
    assert Chain().differences(tmp_path) == []


def test_reward(tmp_path: Path) -> None:
    """A zero that lost its sign between the reward stage and the advantages."""
    chain = Chain()
    chain.taken_rewards[1] = 0.0
    ((stage, before, what),) = chain.differences(tmp_path)
    assert (stage, before) == ("advantage.estimate", "reward.normalize")
    assert what.startswith("rewards of row 000003/000001: 1 of 1 differ")
    assert "got 0 (0x0000000000000000), expected -0 (0x8000000000000000)" in what


def test_swapped(tmp_path: Path) -> None:
    """Two samples that changed places."""
    chain = Chain()
    chain.taken_rewards[0], chain.taken_rewards[3] = chain.taken_rewards[3], chain.taken_rewards[0]
    found = chain.differences(tmp_path)
    assert [what.partition(":")[0] for _, _, what in found] == [f"rewards of row {ROWS[i]}" for i in (0, 3)]


@pytest.mark.parametrize(
    ("taken", "stage", "before"),
    [
        ("taken_by_normalize", "advantage.normalize", "advantage.estimate"),
        ("taken_by_loss", "policy.loss", "advantage.normalize"),
    ],
)
def test_token(taken: str, stage: str, before: str, tmp_path: Path) -> None:
    """One token of one response, off by one bit; and a response that lost a token."""
    chain = Chain()
    values = getattr(chain, taken)
    values[3][1] = torch.nextafter(values[3][1], torch.tensor(9.0))
    values[1] = values[1][:1]
    found = sorted(chain.differences(tmp_path), key=lambda one: one[2])
    assert [one[:2] for one in found] == [(stage, before)] * 2
    assert found[0][2] == "advantages of row 000003/000001: shape [1], expected [2]"
    assert found[1][2].startswith("advantages of row 000003/000003: 1 of 3 differ, first at [1]")


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([[2, 0], [1]], "call 0 of advantage.normalize by all: row 000003/000003 is in no call of policy.loss"),
        ([[2, 0], [1, 3, 0]], "call 1 of policy.loss by all: row 000003/000000 is in call 0 of policy.loss by all too"),
    ],
)
def test_lost_and_twice(losses: list[list[int]], words: str, tmp_path: Path) -> None:
    """A sample that one stage has and the next has not, or has twice, is told."""
    chain = Chain()
    chain.losses = losses
    with pytest.raises(TraceRefused, match=words):
        chain.differences(tmp_path)


@pytest.mark.parametrize(
    ("rows", "words"),
    [(None, "does not tell whose rows it has"), (ROWS[:3], "its advantages are not those of its 3 rows")],
)
def test_nameless(rows: Sequence[str] | None, words: str, tmp_path: Path) -> None:
    """A call whose samples have no names, or too few, cannot be followed."""
    chain = Chain()
    chain.rows = rows
    with pytest.raises(TraceRefused, match=words):
        chain.differences(tmp_path)


def test_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """relax-verify replay counts what changed between two stages as a difference of the run, by sample."""
    write_trace(tmp_path)
    assert main(["replay", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {"judge": "bits", "against": "reward.normalize", "comparisons": 8, "differences": 0} in report["judges"]
    path = tmp_path / f"{ADVANTAGES}.json"
    call = json.loads(path.read_text())
    dict(call["inputs"]["$mapping"])["rewards"][4] += 0.5
    path.write_text(json.dumps(call))
    reseal(tmp_path)
    assert main(["replay", str(tmp_path), "--json"]) == 1
    differences = json.loads(capsys.readouterr().out)["differences"]
    of_link = [one["what"] for one in differences if one["against"] == "reward.normalize"]
    assert of_link == ["rewards of row 000003/000004"]
