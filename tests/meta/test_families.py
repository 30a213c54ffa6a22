"""What the invariance judge knows of an algorithm comes from its registry entry: a new one is not passed over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from relax.algorithms import spec
from relax.algorithms.spec import ALGORITHM_SPECS
from verification.cases.case import Case
from verification.judges import families
from verification.judges.families import UnknownFormula
from verification.judges.invariance import transformations
from verification.subjects.outcome import Outcome

TOKENS = [np.array([0.5, -1.0], dtype=np.float32), np.array([0.25], dtype=np.float32)]
REWARDS = [1.0, -0.5]
MASKS = [np.array([1, 0], dtype=np.float32), np.array([1], dtype=np.float32)]
KNOWN = {
    "reward_normalizer": (spec.REWARD_NORMALIZER_IDS, families.SCORES),
    "advantage_fn": (spec.ADVANTAGE_FN_IDS, families.ESTIMATES),
    "policy_loss_fn": (spec.POLICY_LOSS_FN_IDS, families.OBJECTIVES),
}


def reward_case(algorithm: str) -> Case:
    if ALGORITHM_SPECS[algorithm].uses_reward_components:
        rewards, options = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 2.0}], {"gdpo_reward_keys": ["a", "b"]}
    else:
        rewards, options = REWARDS, {}
    samples = [{"reward": reward, "group_index": 3} for reward in rewards]
    name = f"reward.normalize/{algorithm}/planted"
    return Case(name, "reward.normalize", algorithm, {"samples": samples}, {"n_samples_per_prompt": 2, **options})


def token_case(stage: str, algorithm: str) -> Case:
    inputs = {"rewards": REWARDS, "kl": TOKENS, "values": TOKENS, "mini_batch_sizes": [2]}
    if stage == "policy.loss":
        inputs = {"old_log_probs": TOKENS, "log_probs": TOKENS, "advantages": TOKENS}
    return Case(f"{stage}/{algorithm}/planted", stage, algorithm, {"loss_masks": MASKS, **inputs})


def names(case: Case) -> list[str]:
    """The transformations that hold for a case, by name."""
    arrays = {"rewards": torch.ones(2), "loss": torch.ones(3)}
    return [one.name for one in transformations(case, Outcome(arrays=arrays))]


def all_names(algorithm: str) -> dict[str, list[str]]:
    cases = [
        reward_case(algorithm),
        token_case("advantage.estimate", algorithm),
        token_case("policy.loss", algorithm),
    ]
    return {case.stage: names(case) for case in cases}


@pytest.mark.parametrize("field", KNOWN)
def test_every_identifier_of_the_registry_has_a_kind(field):
    """A new identifier fails here until verification/judges/families.py says what holds for its formula."""
    identifiers, table = KNOWN[field]
    remedy = f"say what holds for {field} in a table of verification/judges/families.py"
    assert sorted(identifiers - set(table)) == [], remedy
    assert sorted(set(table) - identifiers) == [], f"verification/judges/families.py knows a {field} that is gone"


@pytest.mark.parametrize("algorithm", ALGORITHM_SPECS)
def test_a_new_algorithm_gets_what_its_formulas_allow(monkeypatch, algorithm):
    """The same entry under a name that was never seen gets the same transformations at every stage, and some."""
    expected = all_names(algorithm)
    assert all(expected.values()), expected
    monkeypatch.setitem(ALGORITHM_SPECS, "novel", replace(ALGORITHM_SPECS[algorithm], name="novel"))
    assert all_names("novel") == expected


def test_the_kinds_differ_in_what_holds():
    """Each property of a kind shows in the transformations that it allows or forbids."""
    found = {algorithm: all_names(algorithm) for algorithm in ALGORITHM_SPECS}

    def where(stage: str, name: str) -> set[str]:
        return {algorithm for algorithm in found if name in found[algorithm][stage]}

    everything = set(found)
    assert where("reward.normalize", "subnormal numbers flushed") == {"rloo", "gdpo"}
    ungrouped = {"ppo", "reinforce_plus_plus"}
    assert where("reward.normalize", "samples in reverse order") == {"rloo", "gdpo"} | ungrouped
    assert where("reward.normalize", "rewards negated") == everything - ungrouped
    assert where("reward.normalize", "rewards doubled") == {"rloo", "reinforce_plus_plus_baseline"}
    assert where("reward.normalize", "a flat component added") == {"gdpo"}
    assert where("advantage.estimate", "responses in reverse order") == everything - {"ppo", "gdpo"}
    assert where("advantage.estimate", "contents of kl") == everything - ungrouped
    assert where("advantage.estimate", "contents of excluded tokens") == {"reinforce_plus_plus"}
    assert where("advantage.estimate", "subnormal numbers flushed") == {"gdpo"}
    assert where("policy.loss", "responses in reverse order") == everything - {"sapo"}


@pytest.mark.parametrize("field", KNOWN)
def test_an_identifier_without_a_kind_is_an_error(monkeypatch, field):
    """The judge does not pass over a formula that it knows nothing about: the message says where to add it."""
    monkeypatch.setattr(spec, f"{field.upper()}_IDS", KNOWN[field][0] | {"new_formula"})
    novel = replace(ALGORITHM_SPECS["grpo"], name="novel", **{field: "new_formula"})
    monkeypatch.setitem(ALGORITHM_SPECS, "novel", novel)
    with pytest.raises(UnknownFormula, match=rf"'novel'.*{field} 'new_formula'.*verification/judges/families\.py"):
        all_names("novel")


def test_a_name_that_is_not_registered_has_no_transformations():
    """Another implementation's own algorithm is shown its second call alone."""
    for case in (reward_case("grpo"), token_case("advantage.estimate", "grpo"), token_case("policy.loss", "grpo")):
        assert names(replace(case, algorithm="elsewhere")) == []
