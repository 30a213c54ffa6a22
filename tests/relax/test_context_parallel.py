"""Context parallelism over virtual ranks: where sequences are cut, gathered parts, formulas over the parts."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relax.algorithms.advantages import compute_advantages_and_returns
from relax.algorithms.context import WholeResponses
from relax.algorithms.policy import token_losses
from relax.algorithms.simulated import SimulatedWorld
from relax.algorithms.spec import ALGORITHM_SPECS
from relax.backends.megatron import context_parallel as cutting
from relax.backends.megatron.context_parallel import ContextParallel, zigzag_parts
from relax.backends.megatron.parallel import Parallel
from verification.cases.arguments import namespace
from verification.cases.integers import Integers
from verification.judges.bits import first_difference
from verification.judges.ulps import ulp_distance

ALGORITHMS = pytest.mark.parametrize("algorithm", sorted(ALGORITHM_SPECS))


SEVERAL = st.integers(2, 4)  # context-parallel ranks


@st.composite
def batches(draw, cp_sizes=SEVERAL, longest: int = 40):
    """``(cp_size, total_lengths, response_lengths, padded_total_lengths or None)``: empty slices, straddling chunks."""
    cp_size = draw(cp_sizes)
    responses = draw(st.lists(st.integers(0, longest), max_size=4))
    totals = [response + draw(st.integers(1, 2 * longest)) for response in responses]
    if draw(st.booleans()):
        return cp_size, totals, responses, None
    chunks = 2 * cp_size
    return cp_size, totals, responses, [(-(-total // chunks) + draw(st.integers(0, 9))) * chunks for total in totals]


def owner(position: int, padded: int, cp_size: int) -> int:
    """The rank of a position, a chunk at a time: 0, 1, ..., size - 1, size - 1, ..., 1, 0."""
    order = [*range(cp_size), *reversed(range(cp_size))]
    return order[position // (padded // (2 * cp_size))]


def shortest(total: int, cp_size: int) -> int:
    length = total
    while length % (2 * cp_size):
        length += 1
    return length


class TestZigzag:
    """Which tokens a rank holds."""

    @given(batch=batches(st.integers(1, 4)))
    def test_a_rank_holds_the_tokens_whose_logits_lie_in_its_chunks(self, batch):
        """Token by token, the part of each rank is those tokens before which a position of its chunks stands."""
        cp_size, totals, responses, padded = batch
        for position, (total, response) in enumerate(zip(totals, responses, strict=True)):
            length = None if padded is None else padded[position]
            for rank in range(cp_size):
                expected = [
                    token
                    for token in range(response)
                    if owner(total - response + token - 1, length or shortest(total, cp_size), cp_size) == rank
                ]
                parts = zigzag_parts(total, response, cp_size=cp_size, cp_rank=rank, padded_total_length=length)
                assert expected == [token for part in parts for token in part]

    def test_by_hand(self):
        """Sequence of 10 padded to 12, two ranks: logits 0-2 and 9-11 with rank 0; the response's are 3 to 8."""
        assert zigzag_parts(10, 6, cp_size=2, cp_rank=0) == (range(0, 0), range(6, 6))
        assert zigzag_parts(10, 6, cp_size=2, cp_rank=1) == (range(0, 3), range(3, 6))
        assert zigzag_parts(10, 6, cp_size=2, cp_rank=0, padded_total_length=16) == (range(0, 1), range(6, 6))
        assert zigzag_parts(10, 6, cp_size=2, cp_rank=1, padded_total_length=16) == (range(1, 5), range(5, 6))

    @given(batch=batches(st.integers(1, 4)))
    def test_rows_are_the_logits_before_the_tokens(self, batch):
        """The rows of a rank's chunks, laid end to end, are just the positions one before its tokens."""
        cp_size, totals, responses, padded = batch
        for rank in range(cp_size):
            context = ContextParallel(cp_size, rank, None, totals, responses, padded)
            for position, (total, response) in enumerate(zip(totals, responses, strict=True)):
                length = padded[position] if padded else total if cp_size == 1 else shortest(total, cp_size)
                held = [at for at in range(length) if cp_size == 1 or owner(at, length, cp_size) == rank]
                tokens = [token for part in context.parts(position, rank) for token in part]
                assert len(held) == context.sequence_length(position)
                assert [total - response + token - 1 for token in tokens] == [
                    at for rows in context.rows(position) for at in held[rows]
                ]

    def test_an_empty_sequence_has_no_rows(self):
        """A sequence without tokens, alone or cut, takes no row of those behind it."""
        for cp_size in (1, 2):
            context = ContextParallel(cp_size, 0, None, [0], [0])
            assert [torch.arange(5)[rows].tolist() for rows in context.rows(0)] == [[]] * cp_size

    @pytest.mark.parametrize(
        ("total", "response", "padded", "words"),
        [
            (4, 4, None, "response 1: response_length is 4 in a sequence of 4"),
            (4, 5, None, "response 1: response_length is 5 in a sequence of 4"),
            (4, -1, None, "response 1: response_length is -1"),
            (9, 4, 8, "response 1: padded_total_length is 8 for a sequence of 9"),
            (9, 4, 10, "response 1: padded_total_length is 10 .* multiple of 4"),
        ],
    )
    def test_lengths_that_do_not_fit_are_refused_by_name(self, total, response, padded, words):
        """No prompt, a padded length too short, and one of no whole chunks name response and numbers."""
        with pytest.raises(ValueError, match=words):
            ContextParallel(2, 0, None, [3, total], [2, response], None if padded is None else [4, padded])

    def test_a_list_of_another_length_is_refused(self):
        """Two responses and one total length are an error that names both."""
        with pytest.raises(ValueError, match=r"response_lengths holds 2 .* total_lengths holds 1"):
            ContextParallel(2, 0, None, [3], [2, 1])


def over_ranks(batch, function, arguments=None):
    """``function(context, argument)`` on every virtual rank, and how many collectives each of them entered."""
    cp_size, totals, responses, padded = batch
    world = SimulatedWorld(cp_size)

    def on_rank(collective, argument):
        return function(ContextParallel(cp_size, collective.rank, collective, totals, responses, padded), argument)

    results = world.run(on_rank, arguments or [None] * cp_size)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results, world.exchanges


def special(stream: Integers, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Bits that arithmetic would change: NaNs with payloads, -0, subnormals and infinities among others."""
    width = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}[dtype]
    info = torch.iinfo(width)
    return torch.tensor([stream.between(info.min, info.max) for _ in range(length)], dtype=width).view(dtype)


class TestGather:
    """Parts to whole responses."""

    @given(batch=batches(longest=9), name=st.integers(0, 2**32))
    def test_parts_come_together_to_the_bit_in_one_collective(self, batch, name):
        """Cut and gathered, lists of several dtypes come back with every bit, NaN payloads included, on every rank."""
        stream, responses = Integers(f"gather {name}"), batch[2]
        dtypes = (torch.bfloat16, torch.float32, torch.float64, torch.bfloat16)
        whole = [[special(stream, length, dtype) for length in responses] for dtype in dtypes]
        results, collectives = over_ranks(batch, lambda context, _: context.gather_each(*map(context.cut, whole)))
        for lists in results:
            for expected, got in zip(whole, lists, strict=True):
                assert all(first_difference(one, other) is None for one, other in zip(got, expected, strict=True))
        assert collectives == [1 if responses else 0] * batch[0]

    def test_ranks_without_a_token_join(self):
        """Where one rank holds all tokens, or no response has any, every rank still enters the one collective."""
        late = (2, [40], [3], None)  # all in the last quarter, which is rank 0's
        results, collectives = over_ranks(late, lambda context, _: context.gather(context.cut([torch.arange(3.0)])))
        assert [whole.tolist() for (whole,) in results] == [[0.0, 1.0, 2.0]] * 2
        assert collectives == [1, 1]
        results, collectives = over_ranks((2, [40], [0], None), lambda context, _: context.gather([torch.zeros(0)]))
        assert [whole.tolist() for (whole,) in results] == [[]] * 2
        assert collectives == [1, 1]

    @given(batch=batches(longest=9))
    def test_the_gradient_of_a_part_is_summed_over_ranks(self, batch):
        """Each rank weighs every token by its own number: a part's gradient is the sum, in one collective backwards."""
        cp_size, _, responses, _ = batch
        whole = [torch.arange(length, dtype=torch.float32) for length in responses]

        def weighed(context, weight):
            parts = [tokens.requires_grad_() for tokens in context.cut(whole)]
            constants = [tokens.detach().double() for tokens in parts]
            gathered, constant = context.gather_each(parts, constants)
            assert not any(tokens.requires_grad for tokens in constant)
            if gathered:
                sum((weight * tokens * tokens).sum() for tokens in gathered).backward()
            return [(context.rank, tokens.detach(), tokens.grad) for tokens in parts]

        weights = [2.0**rank for rank in range(cp_size)]  # whole numbers throughout: every sum is exact
        results, collectives = over_ranks(batch, weighed, weights)
        for parts in results:
            for _, tokens, gradient in parts:
                assert (2 * sum(weights) * tokens).tolist() == gradient.tolist()
        assert collectives == [2 if responses else 0] * cp_size

    def test_half_precision_gradients_are_summed_with_their_neighbours(self):
        """Gradients of two dtypes cross in one collective, in the wider one, and come back each in its own."""
        whole = [torch.ones(6), torch.ones(6, dtype=torch.bfloat16)]

        def both(context, _):
            parts = [context.own_part(0, tokens).requires_grad_() for tokens in whole]
            (single,), (half,) = context.gather_each([parts[0]], [parts[1]])
            (3 * single.sum() + half.float().sum()).backward()
            return [(tokens.grad.dtype, tokens.grad.tolist()) for tokens in parts]

        results, collectives = over_ranks((2, [13], [6], None), both)
        lengths = [sum(map(len, zigzag_parts(13, 6, cp_size=2, cp_rank=rank))) for rank in range(2)]
        expected = [[(torch.float32, [6.0] * n), (torch.bfloat16, [2.0] * n)] for n in lengths]
        assert expected == results
        assert collectives == [2, 2]

    def test_parts_of_any_stride_come_together(self):
        """A column of a matrix, of one number or none too, is gathered as it reads."""
        column = torch.arange(36, dtype=torch.float32).reshape(6, 6)[:, 2]

        def strided(context, _):
            own = [token for part in context.parts(0, context.rank) for token in part]  # neighbours, for these lengths
            return context.gather([column[own[0] : own[-1] + 1] if own else column[:0]])

        for total in (12, 16, 40):  # one token on either rank, and all on one
            results, _ = over_ranks((2, [total], [6], [40]), strided)
            assert [whole.tolist() for (whole,) in results] == [column.tolist()] * 2

    @pytest.mark.parametrize("call", ["cut", "gather"])
    def test_tensors_of_another_length_are_refused_before_any_collective(self, call):
        """What is no part, or no whole response, is named by its response, and no rank has met another."""
        world = SimulatedWorld(2)

        def wrong(collective, _):
            context = ContextParallel(2, collective.rank, collective, [9, 9], [4, 4])
            right = context.parts(0, context.rank)
            length = {"cut": 4, "gather": sum(map(len, right))}[call]
            return getattr(context, call)([torch.zeros(length), torch.zeros(length + 1)])

        for error in world.run(wrong, [None, None]):
            assert isinstance(error, ValueError)
            assert "response 1: tensors has shape" in str(error)
        assert world.exchanges == [0, 0]

    def test_one_rank_returns_what_it_was_given(self):
        """With size 1 the very tensors come back from both calls, and no group is needed."""
        context, tensors = ContextParallel(1, 0, None, [5], [3]), [torch.zeros(3)]
        for same in (context.cut(tensors), context.gather(tensors), *context.gather_each(tensors, tensors)):
            assert same[0] is tensors[0]


def draw(stream: Integers, lengths: list[int], low: int, high: int) -> list[torch.Tensor]:
    return [torch.from_numpy(stream.array(length, low, high, 16)) for length in lengths]


def objective_inputs(stream: Integers, lengths: list[int]) -> dict[str, list[torch.Tensor]]:
    old = draw(stream, lengths, -(4 << 16), -(1 << 15))
    shifts = draw(stream, lengths, -(1 << 15), 1 << 15)
    levels = [stream.between(-9, 9) / 4 for _ in lengths]
    return {
        "old_log_probs": old,
        "log_probs": [tokens + shift for tokens, shift in zip(old, shifts, strict=True)],
        "advantages": [torch.full((length,), level) for length, level in zip(lengths, levels, strict=True)],
        "loss_masks": [torch.from_numpy(stream.array(length, 0, 1, 0)) for length in lengths],
        "rollout_log_probs": old,
    }


def within(expected: torch.Tensor, got: torch.Tensor, bound: int) -> bool:
    """The same bits, or with a bound at most so many ulps apart."""
    if bound == 0 or not len(expected):
        return first_difference(got, expected) is None
    return float(ulp_distance(got, expected).max()) <= bound


class TestFormulas:
    """Formulas over parts against the same on whole responses."""

    @ALGORITHMS
    @given(batch=batches(), name=st.integers(0, 2**32), opsm=st.booleans())
    def test_token_losses_have_the_bits_of_one_rank(self, algorithm, batch, name, opsm):
        """Loss, clip fraction and KL of every token are those of one rank, sequence means and OPSM included.

        Gradients too, but that of a sequence's ratio, which sums over tokens in another order, and but for the sigmoid,
        which torch computes by another routine where a tensor's last elements fill no vector.
        """
        args = namespace(algorithm, use_opsm=opsm, opsm_delta=0.01, use_tis=True)
        responses = batch[2]
        inputs = objective_inputs(Integers(f"objective {name}"), responses)

        def on_parts(context, _):
            cut = {key: context.cut(tensors) for key, tensors in inputs.items() if key != "loss_masks"}
            leaves = [tokens.requires_grad_() for tokens in cut["log_probs"]]
            losses = token_losses(args, context, **cut, loss_masks=inputs["loss_masks"])
            if leaves:
                losses.loss.sum().backward()
            results = (losses.loss, losses.clipfrac, losses.ppo_kl)
            parts = [result.detach().split([len(tokens) for tokens in leaves]) for result in results]
            return context, parts, [tokens.grad for tokens in leaves]

        leaves = [tokens.requires_grad_() for tokens in inputs["log_probs"]]
        losses = token_losses(args, WholeResponses(), **inputs)
        if leaves:
            losses.loss.sum().backward()
        inputs["log_probs"] = [tokens.detach() for tokens in leaves]
        spec = ALGORITHM_SPECS[algorithm]
        results, collectives = over_ranks(batch, on_parts)
        for context, parts, gradients in results:
            for name, got in zip(("loss", "clipfrac", "ppo_kl"), parts, strict=True):
                expected = context.cut(getattr(losses, name).detach().split(responses))
                # reason: 2 ulps of the sigmoid, by up to another 2 where the product lies in a lower part of its
                # binade, and 2 roundings.
                bound = 6 if spec.policy_loss_fn == "soft_gate" and name == "loss" else 0
                assert all(map(within, expected, got, [bound] * len(got))), name
            expected = context.cut([tokens.grad for tokens in leaves])
            bounds = [0] * len(responses)
            if spec.policy_loss_fn == "soft_gate":
                bounds = [16] * len(responses)  # reason: 2 ulps each of g and 1 - g, g up to 0.65, and 5 roundings
            elif spec.kl_level == "sequence":
                # reason: sums of equal numbers in two orders, each off by half an ulp a number, and 4 roundings each.
                bounds = [length + 4 for length in responses]
            assert all(map(within, expected, gradients, bounds))
        met = (2 if spec.needs_full_log_probs else 1) if responses and (spec.needs_full_log_probs or opsm) else 0
        assert collectives == [met] * batch[0]

    @ALGORITHMS
    @given(batch=batches(), name=st.integers(0, 2**32))
    def test_advantages_have_the_bits_of_one_rank(self, algorithm, batch, name):
        """Whatever the layout, advantages and returns of a rank's tokens are those of the whole response."""
        cp_size, totals, _, padded = batch
        if ALGORITHM_SPECS[algorithm].needs_critic:  # its formula refuses an empty response by name
            totals = [total + 1 for total in totals]
            responses = [length + 1 for length in batch[2]]
            padded = None if padded is None else [length + 2 * cp_size for length in padded]
            batch = (cp_size, totals, responses, padded)
        responses, stream = batch[2], Integers(f"advantages {name}")
        masks = [torch.from_numpy(stream.array(length, 0, 1, 0)) for length in responses]
        for mask in masks:
            mask[-1:] = 1
        kl, values = draw(stream, responses, -9999, 9999), draw(stream, responses, -9999, 9999)
        given = {
            "rewards": [stream.between(-99, 99) / 7 for _ in responses],
            "loss_masks": masks,
            "response_lengths": responses,
            "total_lengths": totals,
            "padded_total_lengths": padded,
            "mini_batch_sizes": [len(responses)],
        }
        options = {"kl_coef": 0.1, "gamma": 0.98, "lambd": 0.9}
        expected = compute_advantages_and_returns(namespace(algorithm, **options), kl=kl, values=values, **given)
        args = namespace(algorithm, context_parallel_size=cp_size, **options)
        this = threading.local()

        def on_parts(context, _):
            this.groups = Parallel(context=context.group)
            cut = {"kl": context.cut(kl), "values": context.cut(values)}
            return context, compute_advantages_and_returns(args, **cut, **given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cutting, "parallel", lambda: this.groups)
            results, _ = over_ranks(batch, on_parts)
        for context, got in results:
            for lists, whole in zip(got, expected, strict=True):
                for one, other in zip(lists, context.cut(whole), strict=True):
                    assert first_difference(one, other) is None
