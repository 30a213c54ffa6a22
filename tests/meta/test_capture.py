"""Does the capture see it? Results, gradients, changed inputs, aliases, failures and the surroundings of a call."""

from __future__ import annotations

import math
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from verification.cases.case import Case
from verification.devices import pretend
from verification.subjects.capture import capture
from verification.subjects.in_process import Implementation, load_subject
from verification.subjects.stages import STAGE_CALLS

ONES = [np.ones(2, dtype=np.float32), np.ones(3, dtype=np.float32)]
ADVANTAGE = Case(
    "advantage.estimate/grpo/fake",
    "advantage.estimate",
    "grpo",
    {"rewards": [1.0, 2.0], "kl": ONES, "loss_masks": ONES, "response_lengths": [2, 3], "total_lengths": [4, 5]},
)
REWARD = Case(
    "reward.normalize/grpo/fake",
    "reward.normalize",
    "grpo",
    {"samples": [{"reward": {"a": 1.0}, "group_index": 0}, {"reward": {"a": -0.0}, "group_index": 0}]},
)
POLICY = Case(
    "policy.loss/grpo/fake",
    "policy.loss",
    "grpo",
    {"old_log_probs": ONES, "log_probs": [item * 2 for item in ONES], "advantages": ONES, "loss_masks": ONES},
)


def run(case: Case, function, **keywords):
    return capture(SimpleNamespace(**{STAGE_CALLS[case.stage].call: function}), case, **keywords)


def test_results_are_named_and_detached():
    """Lists of tensors become one array an element; a later change of the tensors does not reach the outcome."""
    kept = []

    def estimate(args, *, kl, **_):
        kept.extend(item + 1 for item in kl)
        return kept, [item * 3 for item in kl]

    outcome = run(ADVANTAGE, estimate)
    kept[0].zero_()
    assert list(outcome.arrays) == ["advantages[0]", "advantages[1]", "returns[0]", "returns[1]"]
    assert outcome.arrays["advantages[0]"].tolist() == [2.0, 2.0]
    assert outcome.arrays["returns[1]"].tolist() == [3.0, 3.0, 3.0]
    assert outcome.mutated == {}
    assert outcome.aliases == frozenset()


def test_floats_and_decisions_become_arrays():
    """Python floats become one float64 vector with their bits, a bool a bool scalar."""
    outcome = run(REWARD, lambda args, samples: ([0.1, -0.0], [1, np.float32(2.5)]))
    assert outcome.arrays["raw_rewards"].dtype == torch.float64
    assert outcome.arrays["raw_rewards"].tolist() == [0.1, 0.0]
    assert math.copysign(1.0, outcome.arrays["raw_rewards"][1].item()) == -1.0
    assert outcome.arrays["rewards"].tolist() == [1.0, 2.5]
    signal = Case("reward.signal/grpo/fake", "reward.signal", "grpo", REWARD.inputs)
    assert run(signal, lambda args, samples: np.bool_(True)).arrays["signal"].dtype == torch.bool


def test_gradients_of_two_results_are_kept_apart():
    """Each of the results that a stage differentiates has its own gradient by the input, zeros where it has none."""
    rows = [np.ones((2, 3), dtype=np.float32), np.ones((1, 3), dtype=np.float32)]
    inputs = {"logits": rows, "tokens": [np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64)]}
    case = Case("logprob.entropy/grpo/fake", "logprob.entropy", "grpo", inputs)

    def one_depends(args, *, logits, tokens):
        return [row.sum(dim=1) * 2 for row in logits], [row.sum(dim=1) * index * 3 for index, row in enumerate(logits)]

    arrays = run(case, one_depends).arrays
    assert arrays["grad.logits[0]"].tolist() == [[2.0] * 3] * 2
    assert arrays["grad.logits[1]"].tolist() == [[2.0] * 3]
    assert arrays["grad.logits.entropy[0]"].tolist() == [[0.0] * 3] * 2
    assert arrays["grad.logits.entropy[1]"].tolist() == [[3.0] * 3]


def test_results_that_leave_the_device_of_the_inputs_are_named():
    """Of results on another device than the inputs the names are told; an empty list has no device."""

    def estimate(args, *, kl, **_):
        return [kl[0], torch.zeros(3)], []

    with pretend.pretending():
        outcome = run(ADVANTAGE, estimate, place=pretend.place)
    assert outcome.elsewhere == ("advantages[1]",)
    assert outcome.arrays["advantages[0]"].tolist() == [1.0, 1.0]
    assert run(ADVANTAGE, estimate).elsewhere == ()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda i: i["kl"][1].mul_(2), "kl[1]"),
        (lambda i: i["kl"].pop(), "kl[1]"),
        (lambda i: i["rewards"].append(0.0), "rewards[2]"),
        (lambda i: i["rewards"].__setitem__(0, -1.0), "rewards[0]"),
        (lambda i: setattr(i["args"], "gamma", 0.5), "args.gamma"),
        (lambda i: setattr(i["args"], "invented", 1), "args.invented"),
        (lambda i: i["kl"].__setitem__(0, i["kl"][0].double()), "kl[0]"),
    ],
)
def test_a_changed_input_is_seen_with_its_path(change, path):
    """A change in place, another length, another dtype and a changed option are each seen, and nothing else."""

    def estimate(args, **inputs):
        change({"args": args, **inputs})
        return [], []

    assert list(run(ADVANTAGE, estimate).mutated) == [path]


def test_a_change_of_a_zero_sign_or_a_sample_is_seen():
    """-0.0 turned into 0.0 inside a reward mapping is a changed input, and its new value is kept."""

    def normalize(args, samples):
        samples[1].reward["a"] = 0.0
        return [0.0, 0.0], [0.0, 0.0]

    outcome = run(REWARD, normalize)
    assert list(outcome.mutated) == ["samples[1].reward.a"]
    assert outcome.mutated["samples[1].reward.a"].item() == 0.0


def test_a_change_before_a_failure_is_kept():
    """A call that changes its input and then fails shows both."""

    def estimate(args, *, kl, **_):
        kl[0][0] = 7.0
        raise ValueError("too late")

    outcome = run(ADVANTAGE, estimate)
    assert (outcome.failure.kind, outcome.failure.message) == ("ValueError", "too late")
    assert outcome.mutated["kl[0]"].tolist() == [7.0, 1.0]
    assert outcome.arrays == {}


def test_one_call_does_not_reach_the_next():
    """What a call does to its inputs and options is not there for the next call of the same case."""

    def estimate(args, *, kl, **_):
        args.gamma += 1
        return [item.add_(1) for item in kl], [torch.tensor(args.gamma)]

    first, second = run(ADVANTAGE, estimate), run(ADVANTAGE, estimate)
    assert first.arrays["advantages[0]"].tolist() == second.arrays["advantages[0]"].tolist() == [2.0, 2.0]
    assert second.arrays["returns[0]"].item() == 2.0


def aliases_of(estimate) -> set[tuple[str, str]]:
    return set(run(ADVANTAGE, estimate).aliases)


def test_the_same_list_is_an_alias():
    """Returning one list twice is told from returning two lists of the same tensors."""

    def one_list(args, *, kl, **_):
        made = [item + 1 for item in kl]
        return made, made

    def two_lists(args, *, kl, **_):
        made = [item + 1 for item in kl]
        return made, list(made)

    tensors = {("advantages[0]", "returns[0]"), ("advantages[1]", "returns[1]")}
    assert aliases_of(one_list) == {("advantages", "returns"), *tensors}
    assert aliases_of(two_lists) == tensors


def test_overlapping_memory_is_an_alias():
    """A view of a result or of an input is an alias; neighbouring slices and columns of one buffer are none."""
    buffer = torch.zeros(5, 2)

    def slices(args, **_):
        flat = torch.zeros(5)
        return [flat[:2], flat[2:]], [torch.zeros(2), torch.zeros(3)]

    def columns(args, **_):
        return [buffer[:, 0], buffer[:, 1]], [buffer[1:2, 0], torch.zeros(1)]

    def inputs(args, *, kl, **_):
        return [kl[0][1:], kl[1] + 0], [torch.zeros(1), torch.zeros(3)]

    assert aliases_of(slices) == set()
    assert aliases_of(columns) == {("advantages[0]", "returns[0]")}
    assert aliases_of(inputs) == {("advantages[0]", "input.kl[0]")}


def test_the_gradient_is_that_of_the_sum():
    """log_probs require grad, and grad.log_probs[i] is the gradient of loss.sum()."""

    def objective(args, *, log_probs, **_):
        assert all(item.requires_grad for item in log_probs)
        flat = torch.cat(log_probs)
        return flat * flat, flat > 1, flat.detach()

    outcome = run(POLICY, objective)
    assert outcome.arrays["grad.log_probs[0]"].tolist() == [4.0, 4.0]
    assert outcome.arrays["grad.log_probs[1]"].tolist() == [4.0, 4.0, 4.0]
    assert not any(tensor.requires_grad for tensor in outcome.arrays.values())


def test_a_detached_loss_has_zero_gradient():
    """A detach where there should be none shows as a gradient of zeros, not as a missing array."""

    def objective(args, *, log_probs, **_):
        flat = torch.cat(log_probs).detach()
        return flat, flat, flat

    assert run(POLICY, objective).arrays["grad.log_probs[1]"].tolist() == [0.0, 0.0, 0.0]


def test_another_number_of_results_is_a_failure():
    """A call that returns one thing too few fails; it is not cut to size."""
    outcome = run(POLICY, lambda args, **_: (torch.zeros(5), torch.zeros(5)))
    assert outcome.failure.kind == "ValueError"
    assert "2 results" in outcome.failure.message


def test_the_parsers_complaint_is_the_message():
    """Exit 2 is SystemExit with what the parser said, without usage lines; another status is told apart."""
    case = Case("arguments.validate/grpo/fake", "arguments.validate", "grpo", {"argv": ["--gamma", "2"]})

    def refuse(argv):
        sys.stderr.write(f"usage: train [-h]\n   [--gamma]\ntrain: error: {' '.join(argv)} is too much\n")
        raise SystemExit(2)

    outcome = run(case, refuse)
    assert (outcome.failure.kind, outcome.failure.message) == ("SystemExit", "--gamma 2 is too much")

    def leave(argv):
        raise SystemExit(0)

    assert run(case, leave).failure.kind == "SystemExit(0)"


def test_warnings_are_texts_of_the_parser_and_silent_elsewhere():
    """A warning of the parser is part of its outcome; nowhere does one escape."""
    case = Case("arguments.validate/grpo/fake", "arguments.validate", "grpo", {"argv": []})

    def parse(argv):
        warnings.warn("unusual", stacklevel=1)
        return case.arguments()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = run(case, parse)
    assert outcome.texts == {"advantage_estimator": "grpo", "warnings": "unusual"}


def test_the_number_of_threads_is_set_and_restored():
    """A call sees the asked number of threads, and the process has its old number afterwards, after a failure too."""
    before, seen = torch.get_num_threads(), []

    def estimate(args, **_):
        seen.append(torch.get_num_threads())
        raise ValueError

    run(ADVANTAGE, estimate)
    run(ADVANTAGE, estimate, threads=2)
    assert seen == [1, 2]
    assert torch.get_num_threads() == before


def test_not_there_is_no_failure():
    """A missing call and NotImplementedError are "not there"; any other exception is a failure."""
    assert Implementation("empty", SimpleNamespace()).run(ADVANTAGE) is None

    def unknown(args, **_):
        raise NotImplementedError("no such algorithm")

    assert Implementation("old", SimpleNamespace(compute_advantages_and_returns=unknown)).run(ADVANTAGE) is None


class Doubler:
    """An implementation of one's own, with one public call."""

    def kl_per_response(self, args, *, log_probs, **_):
        return [item * 2 for item in log_probs]


class Whole:
    """A subject of one's own that follows the protocol."""

    name = "whole"

    def run(self, case):
        return None


def test_subjects_are_loaded_by_name():
    """module:Class gives a subject for public calls and for the protocol; what cannot be found is said."""
    doubler = load_subject(f"{__name__}:Doubler")
    case = Case("kl.estimate/grpo/fake", "kl.estimate", "grpo", {"log_probs": ONES, "ref_log_probs": ONES})
    assert doubler.run(case).arrays["kl[1]"].tolist() == [2.0, 2.0, 2.0]
    assert load_subject(f"{__name__}:Whole").name == "whole"
    with pytest.raises(ValueError, match="has no attribute 'Nobody'"):
        load_subject(f"{__name__}:Nobody")
    with pytest.raises(ValueError, match="cannot import 'no_such_module'"):
        load_subject("no_such_module:Any")
    with pytest.raises(ValueError, match="has neither"):
        load_subject(f"{__name__}:ONES")
    with pytest.raises(ValueError, match=r"entry point of relax_verification\.subjects"):
        load_subject("unregistered")
