"""The advantage stage: dispatch by the registry, spreading of scores, aliasing, refusals."""

from __future__ import annotations

import re

import pytest
import torch

from relax.algorithms import advantages as stage
from relax.algorithms.advantages import ADVANTAGE_FNS, compute_advantages_and_returns, normalize_advantages
from relax.algorithms.exact import whiten_segments
from relax.algorithms.formulas.broadcast import broadcast, masked_broadcast
from relax.algorithms.spec import ADVANTAGE_FN_IDS, ALGORITHM_SPECS
from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.judges.bits import first_difference

REWARDS = [0.1, -2.5, 3.0]
LENGTHS = [2, 1, 3]


def of_function(identifier: str) -> str:
    return next(name for name, spec in ALGORITHM_SPECS.items() if spec.advantage_fn == identifier)


def inputs(**change):
    stream = Integers("advantages")
    kl = [torch.tensor(stream.quotients(n, -99, 99, 7), dtype=torch.float32) for n in LENGTHS]
    return {
        "rewards": REWARDS,
        "kl": kl,
        "loss_masks": [torch.tensor([1.0, 0.0]), torch.ones(1), torch.tensor([0.0, 1.0, 1.0])],
        "response_lengths": LENGTHS,
        "total_lengths": [n + 4 for n in LENGTHS],
        "values": [torch.full((n,), 0.25) for n in LENGTHS],
        "padded_total_lengths": None,
        "process_group": None,
        "mini_batch_sizes": [2, 1],
        **change,
    }


def test_every_identifier_of_the_registry_has_its_function():
    """The table holds the registry's identifiers and no other."""
    assert set(ADVANTAGE_FNS) == ADVANTAGE_FN_IDS


def test_broadcast_spreads_the_float32_reward():
    """0.1 becomes the float32 next to it on every token; the sign of a zero reward stays."""
    advantages, returns = broadcast([0.1, -0.0], [torch.tensor([5.0, -7.0]), torch.tensor([float("nan")])])
    assert first_difference(returns[0], torch.tensor([0.1, 0.1])) is None
    assert first_difference(returns[1], torch.tensor([-0.0])) is None
    assert advantages is not returns
    assert [a is b for a, b in zip(advantages, returns, strict=True)] == [True, True]


def test_masked_broadcast_is_zero_where_masked_and_one_list():
    """Masked tokens get 0 with the reward's sign; advantages and returns are the very same list."""
    mask = [torch.tensor([1, 0]), torch.tensor([False])]
    advantages, returns = masked_broadcast([0.1, -3.0], [torch.zeros(2), torch.zeros(1)], mask)
    assert first_difference(advantages[0], torch.tensor([0.1, 0.0])) is None
    assert first_difference(advantages[1], torch.tensor([-0.0])) is None
    assert advantages is returns


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_dtype_is_that_of_the_kl(dtype):
    """A score takes the dtype of the KL that it is spread over; a mask makes half precision float32."""
    expected = torch.tensor([0.1, 0.1], dtype=torch.float32).to(dtype)
    kl = [torch.zeros(2, dtype=dtype)]
    assert first_difference(broadcast([0.1], kl)[0][0], expected) is None
    masked = expected.to(torch.promote_types(dtype, torch.float32))
    assert first_difference(masked_broadcast([0.1], kl, [torch.ones(2)])[0][0], masked) is None


def test_a_missing_mask_is_every_token():
    """loss_masks None gives the masked broadcast of ones."""
    kl = [torch.zeros(2), torch.zeros(0)]
    assert [tokens.tolist() for tokens in masked_broadcast([2.0, 3.0], kl, None)[0]] == [[2.0, 2.0], []]


@pytest.mark.parametrize("identifier", sorted(ADVANTAGE_FN_IDS))
def test_the_registry_chooses_the_function(identifier, monkeypatch):
    """The algorithm's own entry of the table is called, once, with the batch as it was given; no other is."""
    calls = []
    for name in ADVANTAGE_FNS:
        monkeypatch.setitem(ADVANTAGE_FNS, name, lambda args, batch, name=name: calls.append((name, args, batch)))
    args, given = namespace(of_function(identifier)), inputs()
    compute_advantages_and_returns(args, **given)
    ((name, got_args, batch),) = calls
    assert name == identifier
    assert got_args is args
    assert all(getattr(batch, field) is value for field, value in given.items())


def test_each_function_passes_what_its_formula_needs():
    """Rewards, KL, masks, values and the options reach the formulas in their places: numbers worked out by hand."""
    one = {"rewards": [1.0], "kl": [torch.tensor([1.0, 2.0])], "loss_masks": [torch.tensor([1.0, 0.0])]}
    one |= {"response_lengths": [2], "total_lengths": [5], "values": [torch.tensor([0.5, 0.25])]}
    expected = {
        "broadcast": [1.0, 1.0],
        "masked_broadcast": [1.0, 0.0],
        "discounted_returns": [0.75, 0.0],
        "gae": [-0.25 + 0.125 - 0.5 + 0.125 * (1 - 0.5 - 0.25), 1 - 0.5 - 0.25],
        "whitened_broadcast": [0.0, 0.0],
    }
    for identifier, numbers in expected.items():
        args = namespace(of_function(identifier), kl_coef=0.25, gamma=0.5, lambd=0.25)
        advantages, _ = compute_advantages_and_returns(args, **inputs(**one, mini_batch_sizes=[1]))
        assert advantages[0].tolist() == numbers, identifier


def test_whitening_is_over_each_optimizer_batch():
    """The spread scores are those of step 3 on segments of 2 and 1, bit by bit; advantages are another list."""
    args = namespace(of_function("whitened_broadcast"))
    advantages, returns = compute_advantages_and_returns(args, **inputs())
    scores = whiten_segments(torch.tensor(REWARDS, dtype=torch.float32), [2, 1])
    assert scores[0] > 0 > scores[1]
    for got, score, length in zip(returns, scores, LENGTHS, strict=True):
        assert first_difference(got, score.repeat(length)) is None
    assert advantages is not returns
    assert all(a is b for a, b in zip(advantages, returns, strict=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mini_batch_sizes": None}, "mini_batch_sizes is None"),
        ({"mini_batch_sizes": [2, 2]}, "sum to 4 3 samples"),
        ({"rewards": [1.0, float("nan"), 2.0]}, "value 1 is not finite"),
        ({"rewards": [1.0, 1e300, 2.0]}, "value 1 is not finite"),
        ({"rewards": [1.0, None, 2.0]}, "not float32"),
    ],
)
def test_step_3_refuses_after_the_ranks_have_met(change, words):
    """Whatever is wrong locally, the header is gathered before anything is raised."""

    class Counting:
        size, rank, gathered = 1, 0, 0

        def sum(self, tensor):
            raise AssertionError("step 3 gathers; it does not sum")

        def max(self, tensor):
            raise AssertionError("step 3 gathers; it looks for no maximum")

        def gather(self, tensor):
            self.gathered += 1
            return tensor[None]

    collective = Counting()
    args = namespace(of_function("whitened_broadcast"))
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        compute_advantages_and_returns(args, **inputs(process_group=collective, **change))
    assert collective.gathered == 1


@pytest.mark.parametrize(
    ("identifier", "change", "words"),
    [
        ("broadcast", {"rewards": [1.0]}, "rewards holds 1 kl holds 3"),
        ("masked_broadcast", {"loss_masks": [torch.ones(2)]}, "kl holds 3 loss_masks holds 1"),
        ("masked_broadcast", {"loss_masks": [torch.ones(2), torch.ones(1), torch.ones(1)]}, "response 2 (3,) (1,)"),
        ("discounted_returns", {"rewards": [1.0]}, "rewards holds 1 kl holds 3"),
        ("gae", {"values": None}, "values is None"),
        ("gae", {"response_lengths": [2, 1]}, "rewards holds 3 response_lengths holds 2"),
        ("whitened_broadcast", {"kl": [torch.zeros(2)]}, "3 values for 1 responses"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(identifier, change, words):
    """Lists of different length and masks of another shape name both sides; nothing is broadcast silently."""
    with pytest.raises(ValueError, match=".*".join(re.escape(word) for word in words.split())):
        compute_advantages_and_returns(namespace(of_function(identifier)), **inputs(**change))


@pytest.mark.parametrize("identifier", ["masked_broadcast", "discounted_returns", "gae"])
def test_cut_responses_need_their_lengths_and_ranks(identifier):
    """Under context parallelism missing lengths are an error that names them, missing ranks one with the option."""
    args = namespace(of_function(identifier), context_parallel_size=2)
    with pytest.raises(ValueError, match=r"context_parallel_size is 2 and total_lengths is None"):
        compute_advantages_and_returns(args, **inputs(total_lengths=None))
    with pytest.raises(ValueError, match=r"context_parallel_size is 2 .* 1 rank.* --context-parallel-size"):
        compute_advantages_and_returns(args, **inputs())


@pytest.mark.parametrize("identifier", sorted(ADVANTAGE_FN_IDS))
def test_inputs_stay_as_they_were(identifier):
    """No formula changes a list or a tensor that it was given, and no result shares memory with one."""
    given = inputs()
    tensors = [tensor for name in ("kl", "loss_masks", "values") for tensor in given[name]]
    before = [tensor.clone() for tensor in tensors]
    args = namespace(of_function(identifier), kl_coef=0.1, gamma=0.9)
    advantages, returns = compute_advantages_and_returns(args, **given)
    assert all(first_difference(now, then) is None for now, then in zip(tensors, before, strict=True))
    assert given["rewards"] == [0.1, -2.5, 3.0]
    inside = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    assert inside.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in (*advantages, *returns))


def test_advantages_are_left_alone_without_the_switch():
    """normalize_advantages off gives the very list back, unread."""
    given = [torch.tensor([float("nan")])]
    assert normalize_advantages(namespace("grpo"), advantages=given, loss_masks=None) is given


@pytest.mark.parametrize("algorithm", sorted(ALGORITHM_SPECS))
def test_the_registry_chooses_the_normalization(algorithm, monkeypatch):
    """Each algorithm's advantages go to the normalization that its entry names, with the masks."""
    for name in stage.TOKEN_NORMALIZATIONS:
        monkeypatch.setitem(
            stage.TOKEN_NORMALIZATIONS, name, lambda advantages, masks, collective, name=name: (name, masks)
        )
    mask = torch.tensor([1.0, 0.0])
    got = normalize_advantages(
        namespace(algorithm, normalize_advantages=True), advantages=[torch.zeros(2)], loss_masks=[mask]
    )
    assert got == (ALGORITHM_SPECS[algorithm].advantage_normalization, [mask])
