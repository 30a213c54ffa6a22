"""A golden notices: each planted difference of an outcome, and a case that is no longer the recorded one."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from verification.cases.case import Case
from verification.goldens.compare import compare_with_golden, golden_of
from verification.goldens.digest import corpus_digest, input_digest
from verification.goldens.guard import WritePermit
from verification.goldens.parse import GoldenFormatError
from verification.goldens.platform import platform_key
from verification.goldens.store import GoldenStore
from verification.revisions.checkout import Checkout
from verification.subjects.outcome import Failure, Outcome

CASE = Case("advantage.normalize/grpo/one", "advantage.normalize", "grpo", {"advantages": [np.float32([0.5, 0.0])]})
NAN = torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32)
PAYLOAD = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
RECORDED = Outcome(
    arrays={"advantages[0]": torch.tensor([0.5, 0.0]), "nan": NAN},
    mutated={"kl[0]": torch.tensor([1.0])},
    aliases=frozenset({("advantages", "returns")}),
    texts={"roles": "actor=a:B"},
)
REFUSED = Outcome(failure=Failure("ValueError", "no"))


@pytest.fixture
def store(tmp_path: Path) -> GoldenStore:
    return GoldenStore(tmp_path)


def recorded(store: GoldenStore, outcome: Outcome, case: Case = CASE) -> Path:
    return store.write(golden_of(case, outcome), WritePermit(Checkout(store.root), "0" * 40))


def with_array(name: str, array: torch.Tensor) -> Outcome:
    return dataclasses.replace(RECORDED, arrays={**RECORDED.arrays, name: array})


PLANTED = {
    "one ulp": with_array("advantages[0]", torch.tensor([0.5 + 2**-24, 0.0])),
    "the sign of zero": with_array("advantages[0]", torch.tensor([0.5, -0.0])),
    "a NaN's payload": with_array("nan", PAYLOAD),
    "the dtype": with_array("advantages[0]", torch.tensor([0.5, 0.0], dtype=torch.float64)),
    "a dtype that no golden holds": with_array("advantages[0]", torch.tensor([0.5, 0.0], dtype=torch.complex64)),
    "the shape": with_array("advantages[0]", torch.tensor([[0.5, 0.0]])),
    "a surplus array": with_array("returns[0]", torch.tensor([0.5])),
    "a missing array": dataclasses.replace(RECORDED, arrays={"nan": NAN}),
    "an input left alone": dataclasses.replace(RECORDED, mutated={}),
    "an input changed otherwise": dataclasses.replace(RECORDED, mutated={"kl[0]": torch.tensor([2.0])}),
    "no alias": dataclasses.replace(RECORDED, aliases=frozenset()),
    "another text": dataclasses.replace(RECORDED, texts={"roles": "actor=a:C"}),
    "a failure": REFUSED,
}


@pytest.mark.parametrize("outcome", PLANTED.values(), ids=PLANTED)
def test_every_planted_difference_is_noticed(store, outcome):
    """One thing changed in the outcome gives at least one difference against the golden."""
    recorded(store, RECORDED)
    findings = compare_with_golden(CASE, outcome, store)
    assert [finding.against for finding in findings if not finding.agrees]
    assert {finding.against for finding in findings} == {"golden"}


def test_the_recorded_outcome_agrees(store):
    """The same bits agree after the way through text, NaN payload and negative zero included."""
    for outcome in (RECORDED, REFUSED, PLANTED["a NaN's payload"], PLANTED["the sign of zero"]):
        recorded(store, outcome)
        assert all(finding.agrees for finding in compare_with_golden(CASE, outcome, store))


def test_failures_agree_by_type_and_not_by_message(store):
    """Another message is no difference; another type, or a success, is one."""
    recorded(store, REFUSED)

    def agrees(outcome: Outcome) -> bool:
        return all(finding.agrees for finding in compare_with_golden(CASE, outcome, store))

    assert agrees(Outcome(failure=Failure("ValueError", "said otherwise")))
    assert not agrees(Outcome(failure=Failure("TypeError", "no")))
    assert not agrees(RECORDED)


def test_without_a_golden_there_is_neither_agreement_nor_difference(store):
    """Nothing recorded for this platform gives None, even where another platform has a golden."""
    assert compare_with_golden(CASE, RECORDED, store) is None
    path = recorded(store, RECORDED)
    elsewhere = path.parents[1] / "cpu-torch2.13.0-neon-00000000" / path.name
    elsewhere.parent.mkdir()
    path.rename(elsewhere)
    assert compare_with_golden(CASE, RECORDED, store) is None


OTHER = dataclasses.replace(CASE, id="advantage.normalize/grpo/other")
EVERYWHERE = Case("reward.signal/grpo/one", "reward.signal", "grpo", {"samples": []})


def test_a_case_without_golden_on_a_recorded_platform_is_a_difference_of_its_own_kind(store):
    """Where the platform has goldens, a missing one is one difference that names the remedy, whatever the outcome."""
    path = recorded(store, RECORDED)
    (finding,) = compare_with_golden(OTHER, RECORDED, store)
    assert (finding.case, finding.agrees, finding.what) == (OTHER.id, False, "no golden recorded for this case")
    assert (finding.judge, finding.against) == ("bits", "golden")
    for part in (platform_key(), "relax-verify golden regen", f"golden accept '{OTHER.id}'"):
        assert part in finding.detail
    path.unlink()
    assert compare_with_golden(CASE, RECORDED, store) is None  # nothing is left that says it was recorded
    (path.parent / "provenance.json").write_text("{}")
    assert [one.what for one in compare_with_golden(CASE, RECORDED, store)] == ["no golden recorded for this case"]


def test_each_platform_key_stands_for_itself(store):
    """Goldens that hold everywhere do not make this platform a recorded one, nor the other way round."""
    signal = Outcome(arrays={"signal": torch.tensor(True)})
    recorded(store, signal, EVERYWHERE)
    assert compare_with_golden(CASE, RECORDED, store) is None
    malformed = dataclasses.replace(OTHER, error=("mask",))  # recorded under `any` too
    assert [one.what for one in compare_with_golden(malformed, REFUSED, store)] == ["no golden recorded for this case"]


def test_a_changed_case_is_a_difference_of_its_own_kind(store):
    """Other inputs give one difference that says so, whatever the outcome, and names the remedy."""
    recorded(store, RECORDED)
    altered = dataclasses.replace(CASE, inputs={"advantages": [np.float32([0.5, -0.0])]})
    (finding,) = compare_with_golden(altered, RECORDED, store)
    assert (finding.agrees, finding.what, finding.against) == (False, "inputs", "golden")
    assert "the case changed since the golden was recorded" in finding.detail
    assert "relax-verify golden regen" in finding.detail


def test_a_damaged_golden_is_an_error_with_its_place(store):
    """A golden that cannot be read is no verdict of either kind."""
    path = recorded(store, RECORDED)
    path.write_text(path.read_text().replace("3f000000", "3f00000g"))
    with pytest.raises(GoldenFormatError, match=rf"{path.name}:\d+: '3f00000g' is not 8 hex digits"):
        compare_with_golden(CASE, RECORDED, store)
    assert platform_key() in str(path)


OTHER_INPUTS = [
    1,
    1.0,
    True,
    "1",
    b"1",
    None,
    [1],
    [[1]],
    [],
    {"a": 1},
    {"a": None},
    {"b": 1},
    {"a": 1, "b": 1},
    {"b": 1, "a": 1},
    0.0,
    -0.0,
    float("nan"),
    float("inf"),
    1 + 0j,
    Fraction(1),
    Decimal(1),
    np.float32(1),
    np.float64(1),
    np.bool_(True),
    np.int64(1),
    np.ones(1, np.float32),
    np.ones((1, 1), np.float32),
    np.ones(1, np.float64),
    np.zeros(1, np.float32),
    -np.zeros(1, np.float32),
    np.array([0x7FC00001], np.uint32).view(np.float32),
    np.array([0x7FC00002], np.uint32).view(np.float32),
]


def test_inputs_that_differ_in_type_or_bits_have_different_digests():
    """Every pair of these inputs is told apart, though many are equal as numbers."""
    digests = [input_digest(dataclasses.replace(CASE, inputs={"x": value})) for value in OTHER_INPUTS]
    assert len(set(digests)) == len(OTHER_INPUTS)


def test_the_digest_covers_what_decides_the_outcome_and_nothing_else():
    """Stage, algorithm and options count; the id, note, tags and the words of the error do not."""
    digest = input_digest(CASE)
    for change in ({"stage": "loss.reduce"}, {"algorithm": "ppo"}, {"options": {"gamma": 0.9}}):
        assert digest != input_digest(dataclasses.replace(CASE, **change)), change
    for change in ({"id": "a/b/c"}, {"note": "x"}, {"tags": ("x",)}, {"error": ("x",)}):
        assert digest == input_digest(dataclasses.replace(CASE, **change)), change


def test_strings_do_not_run_into_each_other():
    """Neighbouring values keep their borders."""
    one, other = (dataclasses.replace(CASE, inputs={"x": pair}) for pair in (["ab", "c"], ["a", "bc"]))
    assert input_digest(one) != input_digest(other)


def test_an_input_that_is_no_plain_data_is_named_with_its_place():
    """A value without exact form says where it stands."""
    broken = dataclasses.replace(CASE, inputs={"samples": [{"reward": 1.0}, {"reward": object()}]})
    with pytest.raises(TypeError, match=r"advantage.normalize/grpo/one\['samples'\]\[1\]\['reward'\]: object is no"):
        input_digest(broken)


def test_the_corpus_digest_ignores_the_order_of_cases():
    """The corpus is a set: its digest changes with its members and not with their order."""
    other = dataclasses.replace(CASE, id="advantage.normalize/grpo/two")
    assert corpus_digest([CASE, other]) == corpus_digest([other, CASE])
    assert corpus_digest([CASE, other]) != corpus_digest([CASE])
