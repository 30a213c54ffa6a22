"""Every single simplification of a case is a case that means something: counts, lengths, groups and numbers fit."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from verification.cases.case import Case
from verification.cases.families import NO_GROUPS
from verification.cases.registry import corpus
from verification.diff.shrink import neighbours, size

VALID = [case for case in corpus() if case.error is None and sum(size(case)) <= 40][::3]
OF_RESPONSES = ("kl.estimate", "advantage.estimate", "advantage.normalize", "policy.loss", "loss.reduce")


@pytest.mark.parametrize(("stage", "least"), [*((stage, 500) for stage in OF_RESPONSES), ("logprob.entropy", 100)])
def test_simplified_responses_go_on_to_fit_each_other(stage, least):
    """Whatever is taken away from a batch, its lists have one entry a response, and each response one length."""
    tried = 0
    for case in (case for case in VALID if case.stage == stage):
        for simpler in neighbours(case):
            tried += 1
            lists = {name: value for name, value in simpler.inputs.items() if isinstance(value, list)}
            plan = lists.pop("mini_batch_sizes", None)
            (count,) = {len(value) for value in lists.values()}
            whole = lists.pop("full_loss_masks", None)  # of a response, of which this rank may hold a part
            assert plan is None or sum(plan) == count, simpler.id
            for response in range(count):
                arrays = [value[response] for value in lists.values() if isinstance(value[response], np.ndarray)]
                (length,) = {len(array) for array in arrays}
                assert whole is None or len(whole[response]) >= length, simpler.id
                told = [lists[name][response] for name in ("response_lengths", "total_lengths") if name in lists]
                assert told in ([], [length, length + 5]), simpler.id
    assert tried > least


def test_simplified_logits_keep_a_place_for_every_token():
    """A vocabulary that shrinks still has the tokens whose log-probs are asked for."""
    checked = 0
    for case in (case for case in corpus() if case.stage == "logprob.entropy" and case.error is None):
        for simpler in neighbours(case) if sum(size(case)) <= 40 else ():
            checked += 1
            for logits, tokens in zip(simpler.inputs["logits"], simpler.inputs["tokens"], strict=True):
                assert np.all((tokens >= 0) & (tokens < logits.shape[1])), simpler
    assert checked > 500


def group_sizes(case: Case) -> set[int]:
    """The sizes of a case's groups."""
    return set(Counter(sample["group_index"] for sample in case.inputs["samples"]).values())


def test_simplified_samples_stay_whole_groups():
    """Of cases of whole groups every simplification has whole groups, of two or more where groups are compared."""
    tried = 0
    for case in (case for case in VALID if case.stage == "reward.normalize"):
        least = min(case.options["n_samples_per_prompt"], 1 if case.algorithm in NO_GROUPS else 2)
        for simpler in neighbours(case) if group_sizes(case) == {case.options["n_samples_per_prompt"]} else ():
            assert {simpler.options["n_samples_per_prompt"]} == group_sizes(simpler), simpler
            assert least <= simpler.options["n_samples_per_prompt"], simpler
            tried += 1
    assert tried > 1000


def test_log_probs_and_ratios_stay_what_they_are():
    """No simplification makes a log-prob positive or a ratio zero or negative: such numbers have no meaning."""
    checked = 0
    for case in (case for case in VALID if case.stage in ("kl.estimate", "policy.loss")):
        for name in ("log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "importance_ratios"):
            meant = np.greater if name == "importance_ratios" else np.less_equal
            if not all(meant(array, 0).all() for array in case.inputs.get(name) or ()):
                continue
            for simpler in neighbours(case):
                checked += 1
                assert all(meant(array, 0).all() for array in simpler.inputs.get(name) or ()), simpler
    assert checked > 1000
