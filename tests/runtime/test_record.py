"""What a run counts and measures: rows, counts, fingerprints, and the lines at its end."""

from __future__ import annotations

import json
import math
import random
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from relax.core.counts import Counted
from relax.core.fingerprint import fingerprint, joined
from relax.core.record import Record
from relax.core.rows import batch_keys, rollout_keys
from relax.core.units import Unit
from relax.progress.summary import Summary
from relax.progress.times import Times

ARGS = Namespace(
    rollout_batch_size=2,
    n_samples_per_prompt=4,
    global_batch_size=4,
    num_rollout=4,
    loss_type="policy_loss",
    debug_rollout_only=False,
    hybrid=False,
    fully_async=False,
)


def trained(number: int, loss: float) -> dict[str, Any]:
    """What one of two ranks gives for its half of an optimizer batch, which is all but counted."""
    metrics = {"loss": loss, "grad_norm": 2.0}
    return {"trained": Counted(2), "metrics": metrics, "fingerprint": number, "seconds": {"loss": 0.5}}


def record_of_a_rollout() -> Record:
    """Rollout 3, in two optimizer batches on two ranks."""
    record = Record(ARGS)
    record.begin()
    generated = {
        "generated": Counted.of("abcdefgh"),
        "enqueued": Counted.of("abcdefgh"),
        "drawn": 3,
        "rewards": {"correctness": 0.25, "format": 1.0},
        "metrics": {"zero_std": 1.0},
        "response_length": 5.5,
        "fingerprint": 11,
        "seconds": {"sample": 1.5},
    }
    record.take(Unit("generate", "rollout", "generate", {"rollout": 3}), [generated])
    for batch, loss in ((6, 1.0), (7, 3.0)):
        unit = Unit(f"train {batch}", "actor", "train", {"batch": batch})
        record.take(unit, [trained(2**63, loss), trained(batch, loss)])
    record.take(Unit("critic", "critic", "train", {"batch": 6}), [{"metrics": {"loss": 0.5}, "seconds": {}}])
    record.take(Unit("critic", "critic", "train", {"batch": 7}), [{"metrics": {"loss": 1.5}, "seconds": {}}])
    return record


def test_row() -> None:
    """A row holds the step reached, the rewards, and the means over the rollout's optimizer steps."""
    row = record_of_a_rollout().row([3], [6, 7])
    assert row.pop("seconds") > 0
    assert row.pop("samples_per_second") > 0
    assert row == {
        "rollout": 3,
        "step": 8,
        "reward/correctness": 0.25,
        "reward/format": 1.0,
        "rollout/zero_std": 1.0,
        "rollout/drawn": 3,
        "rollout/response_length": 5.5,
        "train/loss": 2.0,
        "train/grad_norm": 2.0,
        "critic/loss": 1.0,
        "samples": 8,
    }


def counted_run(*, sampled: Iterable[int], trained: Iterable[int], reported: Iterable[int]) -> Record:
    """A run of four rollouts of two optimizer batches each; the numbers are those of rollouts."""
    record = Record(ARGS)
    record.begin()
    for rollout in sampled:
        counted = Counted.of(rollout_keys(ARGS, rollout))
        facts = {"generated": counted, "enqueued": counted, "fingerprint": 1, "seconds": {}}
        record.take(Unit(f"generate {rollout}", "rollout", "generate", {"rollout": rollout}), [facts])
    for batch in (batch for rollout in trained for batch in (2 * rollout, 2 * rollout + 1)):
        facts = {"trained": Counted.of(batch_keys(ARGS, batch)), "metrics": {}, "fingerprint": 1, "seconds": {}}
        record.take(Unit(f"train {batch}", "actor", "train", {"batch": batch}), [facts])
    for rollout in reported:
        record.row([rollout], [2 * rollout, 2 * rollout + 1])
    return record


def test_nothing_lost() -> None:
    """All samples of the run were generated, enqueued and trained on: in one process, or on from a checkpoint, which
    counts no rollout that is in flight."""
    whole = counted_run(sampled=range(4), trained=range(4), reported=range(4))
    assert whole.summary().nothing_lost
    assert whole.summary().text().endswith("generated 32 == enqueued 32 == trained 32\n")
    before = counted_run(sampled=range(4), trained=range(2), reported=range(2))
    later = counted_run(sampled=(2, 3), trained=(2, 3), reported=())
    later.restore(json.loads(json.dumps(before.saved(2))))
    assert later.summary().nothing_lost
    assert before.saved(2)["counts"] == later.saved(2)["counts"]
    for rollout in (2, 3):
        later.row([rollout], [2 * rollout, 2 * rollout + 1])
    assert whole.summary().counted == later.summary().counted


@pytest.mark.parametrize(
    ("sampled", "trained", "said"),
    [
        (range(4), range(3), "generated 32 != enqueued 32 != trained 24 (the run has 32)"),
        (range(3), range(3), "generated 24 == enqueued 24 == trained 24 (the run has 32)"),
        ((0, 1, 2, 4), (0, 1, 2, 4), "generated 32 == enqueued 32 == trained 32 (not the same samples)"),
        (range(4), (0, 1, 2, 2), "generated 32 != enqueued 32 != trained 24 (the run has 32)"),
        (range(3), range(4), "generated 24 != enqueued 24 != trained 32 (the run has 32)"),
    ],
)
def test_a_lost_rollout(sampled: Iterable[int], trained: Iterable[int], said: str) -> None:
    """A rollout that was sampled and never trained on, never sampled, or another one is told, though what was reported
    is whole."""
    record = counted_run(sampled=sampled, trained=trained, reported=range(3))
    assert not record.summary().nothing_lost
    assert record.summary().text().endswith(f"{said}\n")


def test_evaluations_that_json_cannot_hold() -> None:
    """Mean rewards that are NaN or infinite come back from a checkpoint as they were."""
    record = record_of_a_rollout()
    rewards = {"a": math.nan, "b": -math.inf, "c": 0.1}
    record.take(Unit("evaluation at the start", "rollout", "evaluate"), [{"rewards": rewards, "seconds": {}}])
    saved = json.loads(json.dumps(record.saved(4), allow_nan=False))
    later = record_of_a_rollout()
    later.restore(saved)
    assert str(later.evaluations) == "{'start': {'a': nan, 'b': -inf, 'c': 0.1}}"


def test_rewards_that_come_and_go() -> None:
    """A rollout whose rewards have other names than those of the one before it is no obstacle."""
    record = Record(ARGS)
    record.begin()
    for rollout, rewards in ((0, {"a": 1.0}), (1, {"b": 2.0})):
        facts = {"generated": Counted(8, 5), "enqueued": Counted(8, 5), "drawn": 2, "rewards": rewards, "metrics": {}}
        facts |= {"response_length": 1.0, "fingerprint": 1, "seconds": {}}
        record.take(Unit(f"generate {rollout}", "rollout", "generate", {"rollout": rollout}), [facts])
    row = record.row([0, 1], [])
    assert (row["reward/a"], row["reward/b"]) == (1.0, 2.0)


def test_fingerprints() -> None:
    """Those of a rollout's advantages are joined over ranks and steps; those of its tokens are the rollout role's."""
    record = record_of_a_rollout()
    record.row([3], [6, 7])
    assert record.fingerprints == {3: {"tokens": 11, "advantages": 13}}


def test_fingerprint_of_bits() -> None:
    """The same however rows are ordered and dealt; another for another bit, key, shape or type."""
    keys = [f"{number:03d}" for number in range(7)]
    column = [torch.arange(number, dtype=torch.float32) for number in range(7)]
    whole = fingerprint(keys, column)
    order = random.Random(0).sample(range(7), 7)
    parts = [fingerprint([keys[i] for i in part], [column[i] for i in part]) for part in (order[:3], order[3:])]
    assert whole == joined(parts)
    others = [
        fingerprint([*keys[:6], "x"], column),
        fingerprint(keys, [*column[:6], column[6].clone().index_fill_(0, torch.tensor([0]), -0.0)]),
        fingerprint(keys, [*column[:6], column[6].view(2, 3)]),
        fingerprint(keys, [*column[:6], column[6].view(torch.int32)]),
        fingerprint(keys[:6], column[:6]),
    ]
    assert len({whole, *others}) == 6


def test_counted() -> None:
    """The same for the same rows in any order and parts; one lost and another twice is not the same."""
    whole = Counted.of("abcdef")
    assert whole == Counted.all_of([Counted.of("fa"), Counted.of("bdec"), Counted()])
    assert whole.samples == 6
    assert len({whole, Counted.of("abcdee"), Counted.of("abcde"), Counted.of("abcdex")}) == 4


def test_summary() -> None:
    """The lines at the end: rewards before and after, where the time went, and whether a sample was lost."""
    eight = Counted.of("abcdefgh")
    summary = Summary(
        evaluations={"start": {"format": 0.25}, "end": {"format": 1.0}},
        times=Times(elapsed=4.0, steps=3.0, spent={"actor": {"loss": 1.5}}),
        expected=eight,
        counted=dict.fromkeys(("generated", "enqueued", "trained"), eight),
    )
    assert summary.nothing_lost
    assert [line.split() for line in summary.text().splitlines()] == [
        ["evaluation", "start", "end", "change"],
        ["format", "0.2500", "1.0000", "+0.7500"],
        ["where", "the", "time", "went", "seconds", "of", "the", "run"],
        ["steps", "3.00", "75.0%"],
        ["the", "run", "4.00", "100.0%"],
        ["in", "the", "steps", "seconds", "of", "the", "steps"],
        ["loss,", "gradients", "1.50", "50.0%"],
        ["other,", "waiting", "1.50", "50.0%"],
        ["the", "steps", "3.00", "100.0%"],
        ["generated", "8", "==", "enqueued", "8", "==", "trained", "8"],
    ]
    four = Counted.of("abcd")
    lost = Summary({}, Times(), four, {"generated": four, "trained": Counted.of("abc")})
    assert not lost.nothing_lost
    assert lost.text().endswith("generated 4 != trained 3 (the run has 4)\n")
    twice = Summary({}, Times(), four, {"generated": four, "trained": Counted.of("abcc")})
    assert not twice.nothing_lost
    assert twice.text().endswith("generated 4 != trained 4 (not the same samples)\n")
