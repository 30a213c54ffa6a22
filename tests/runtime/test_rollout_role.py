"""The rollout role: what it puts, what it counts, the filter, and its evaluations."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from relax.components.rollout import MOST_DRAWN, Rollout
from relax.core.counts import Counted
from relax.core.rows import rollout_keys
from relax.rollout.columns import SEQUENCE_COLUMNS
from relax.types import Sample
from tests.runtime.in_process import tiny
from tests.runtime.local_queue import LocalQueue

pytestmark = pytest.mark.usefixtures("alone")

HERE = "tests.runtime.test_rollout_role"


def odd_problems(args: Namespace, group: list[Sample]) -> bool:
    """Keeps the prompt groups of problems with an odd number."""
    return group[0].metadata["problem"] % 2 == 1


def nothing(args: Namespace, group: list[Sample]) -> bool:
    """Keeps no prompt group."""
    return False


def by_length(args: Namespace, samples: list[Sample]) -> None:
    """An advantage of one's own: long responses are good."""
    for sample in samples:
        sample.custom_advantage = float(sample.response_length)


def made(*options: str) -> tuple[Rollout, LocalQueue]:
    """A rollout role with its queue; four prompts of four samples."""
    queue = LocalQueue()
    return Rollout(tiny("grpo", *options), queue), queue


def test_rows() -> None:
    """Every sample is a row with all columns, in the order of its groups; the counts say so."""
    role, queue = made()
    keys = rollout_keys(role.args, 3)
    facts = role.generate(3)
    assert keys == queue.keys()
    columns = queue.get(keys, [*SEQUENCE_COLUMNS, "rewards", "raw_reward", "rollout_log_probs"])
    assert list(range(16)) == columns["indices"]
    assert facts["generated"] == facts["enqueued"] == Counted.of(keys)
    assert facts["drawn"] == 4
    assert len({tuple(tokens.tolist()) for tokens in columns["tokens"]}) > 8
    for position in range(16):
        lengths = columns["response_lengths"][position], len(columns["rollout_log_probs"][position])
        assert lengths[0] == lengths[1] == len(columns["loss_masks"][position])
    for start in range(0, 16, 4):
        assert sum(columns["rewards"][start : start + 4]) == pytest.approx(0.0, abs=1e-5)  # reason: four float32
        prompts = {tuple(tokens[:5].tolist()) for tokens in columns["tokens"][start : start + 4]}
        assert len(prompts) == 1


def test_a_filter_draws_on() -> None:
    """Prompts are drawn until a whole rollout is kept; kept groups are numbered anew, and no problem comes twice."""
    role, queue = made("--dynamic-sampling-filter-path", f"{HERE}:odd_problems")
    drawn, prompts = [], []
    for rollout in range(2):
        keys = rollout_keys(role.args, rollout)
        drawn.append(role.generate(rollout)["drawn"])
        columns = queue.get(keys, ["indices", "tokens"])
        assert list(range(16)) == columns["indices"]
        prompts += [tuple(tokens[:5].tolist()) for tokens in columns["tokens"][::4]]
    assert all(count > 4 for count in drawn)
    assert role._next_problem == 10**6 + sum(drawn)
    odd = [role.task.problem(number).question for number in range(10**6 + 1, role._next_problem, 2)]
    asked = [role.task.tokenizer.decode(tokens) for tokens in prompts]
    assert all(question.startswith(text.rstrip("= ")) for question, text in zip(odd, asked, strict=False))
    assert len(asked) == 8


def test_a_filter_that_keeps_nothing() -> None:
    """It is said after a bounded number of prompts, with how many were drawn and what to do."""
    role, _ = made("--dynamic-sampling-filter-path", f"{HERE}:nothing")
    with pytest.raises(ValueError, match=rf"rollout 0: of {4 * MOST_DRAWN} prompts drawn, .*nothing kept 0, and 4"):
        role.generate(0)


def test_advantages_of_ones_own() -> None:
    """The function of --agentic-custom-advantage-path sees all samples, and its numbers are what training sees."""
    role, queue = made("--agentic-custom-advantage-path", f"{HERE}:by_length")
    keys = rollout_keys(role.args, 0)
    role.generate(0)
    columns = queue.get(keys, ["rewards", "response_lengths", "raw_reward"])
    assert [float(length) for length in columns["response_lengths"]] == columns["rewards"]
    assert columns["raw_reward"] != columns["rewards"]


def test_weights_are_taken() -> None:
    """A rollout is sampled with the weights handed to it, and the next one with the same where none are."""
    one, _ = made()
    other, _ = made()
    weights = {name: tensor.detach() * 3 for name, tensor in one.model.named_parameters()}
    found = [one.generate(0, weights)["fingerprint"], one.generate(1)["fingerprint"]]
    plain = [other.generate(0)["fingerprint"], other.generate(1)["fingerprint"]]
    assert all(a != b for a, b in zip(found, plain, strict=True))
    assert all(torch.equal(weights[name], tensor) for name, tensor in one.model.named_parameters())


def test_evaluation() -> None:
    """The likeliest responses to problems of their own: twice the same, and nothing else moves."""
    role, queue = made("--eval-problems", "5")
    first, second = role.evaluate(), role.evaluate()
    assert first["rewards"] == second["rewards"]
    assert {"correctness", "format", "length", "total"} == first["rewards"].keys()
    assert queue.keys() == []
    untouched, _ = made()
    assert untouched.generate(0)["fingerprint"] == role.generate(0)["fingerprint"]
