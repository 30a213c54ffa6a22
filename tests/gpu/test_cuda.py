"""The formulas on a GPU: GDPO's bits, streams that work at the same time, memory, and a platform key of its own."""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext

import pytest
import torch

from relax.algorithms.collective import LocalCollective
from relax.algorithms.formulas.log_probs import vocab_parallel_log_probs
from verification.cases import corpus
from verification.cases.case import Case
from verification.devices.examine import examine_on
from verification.devices.gdpo_steps import judge_steps
from verification.devices.plan import on_a_device, with_tensors
from verification.goldens.platform import platform_key
from verification.judges.bits import first_difference


def kinds() -> dict[str, list[Case]]:
    """The cases with tensors by stage and algorithm."""
    by_kind: dict[str, list[Case]] = {}
    for case in with_tensors(corpus()):
        by_kind.setdefault(f"{case.stage}/{case.algorithm}", []).append(case)
    return by_kind


KINDS = kinds()


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_of_each_kind_holds(gpu, kind):
    """Every judge on every twentieth case of each stage and algorithm; `relax-verify device cuda` takes them all."""
    for case in KINDS[kind][::20]:
        found = examine_on(gpu, case)
        assert found.problems == []
        assert [(one.judge, one.what, one.detail) for one in found.comparisons if not one.agrees] == []


def test_gdpo_has_the_cpus_bits(gpu):
    """Steps 1 to 3 of every case that holds them, with their tensors on the GPU."""
    judged = [one for case in on_a_device(corpus()) for one in judge_steps(case, gpu)]
    assert [one.detail for one in judged if not one.agrees] == []
    assert len(judged) > 1000


def test_streams_that_work_at_the_same_time_do_not_change_bits(gpu):
    """Large log-probs and entropies on three streams at once equal the first ones, forward and backward."""
    logits = torch.arange(256 * 32_000, dtype=torch.float32).remainder_(8191).reshape(256, -1) / 512
    tokens = gpu.place(torch.arange(256) * 101)
    leaves = [gpu.place(logits).requires_grad_() for _ in range(6)]
    torch.cuda.synchronize()
    results = []
    for leaf, lane in zip(leaves, itertools.cycle(gpu.lanes.values()), strict=False):
        with lane():
            log_probs, entropy = vocab_parallel_log_probs(leaf, tokens, LocalCollective())
            results.append((log_probs, entropy, torch.autograd.grad((log_probs + entropy).sum(), leaf)[0]))
    torch.cuda.synchronize()
    for other in results[1:]:
        for got, expected in zip(other, results[0], strict=True):
            assert first_difference(got, expected) is None


def test_no_softmax_is_kept_between_the_passes(gpu):
    """After the forward pass of bfloat16 logits less than a tenth of their memory is held besides them."""
    place = torch.device(gpu.name)
    logits = torch.zeros(1024, 32_768, dtype=torch.bfloat16, device=place, requires_grad=True)
    tokens = torch.zeros(1024, dtype=torch.int64, device=place)
    before = torch.cuda.memory_allocated(place)
    results = vocab_parallel_log_probs(logits, tokens, LocalCollective())
    held = torch.cuda.memory_allocated(place) - before
    assert held < logits.numel() * logits.element_size() / 10
    sum(results).sum().backward()
    assert logits.grad.shape == logits.shape


def test_the_platform_key_is_the_gpus_own(gpu):
    """Goldens of a GPU are kept apart by torch release, compute capability and the bits of its probes."""
    key = platform_key(gpu.name)
    assert re.fullmatch(r"cuda-torch[0-9.]+[a-z0-9]*-sm\d+-[0-9a-f]{8}", key)
    assert platform_key.__wrapped__(gpu.name) == key
    assert platform_key() != key


def test_the_default_stream_is_the_first_lane(gpu):
    """A call that names no lane runs where training runs."""
    assert next(iter(gpu.lanes.values())) is nullcontext
    assert len(gpu.lanes) == 3
