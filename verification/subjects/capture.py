"""Run one call of an implementation and write down what it did: results, changed inputs, aliases, or its failure."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from verification.cases.case import Case
from verification.subjects.outcome import Failure, Outcome
from verification.subjects.snapshot import changes, snapshot
from verification.subjects.stages import STAGE_CALLS, Stage, as_tensors, named_results


def capture(
    implementation: Any,
    case: Case,
    *,
    threads: int = 1,
    watch: bool = True,
    place: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Outcome | None:
    """The outcome of ``case`` on ``implementation`` (a module or object with the public calls as attributes).

    None where the implementation has no such call. An exception is the failure of the outcome; a failed call's changed
    inputs are kept too, since a call that refuses its input must not have touched it. ``watch`` off: results only,
    neither changed inputs nor aliases, for callers who compare nothing else. ``place`` moves each input tensor to the
    device that the call is to work on; what it gives comes back to the CPU.
    """
    stage = STAGE_CALLS[case.stage]
    call = getattr(implementation, stage.call, None)
    if call is None:
        return None
    inputs = case.fresh_inputs()
    if place is not None:
        inputs = {name: _placed(value, place) for name, value in inputs.items()}
    if "args" in stage.first:
        inputs["args"] = case.arguments()
    if stage.differentiate is not None:
        for tensor in inputs[stage.differentiate]:
            tensor.requires_grad_(tensor.is_floating_point())
    positional = [inputs[name] for name in stage.first]
    keywords = {name: inputs.get(name) for name in stage.keywords}
    before = snapshot(inputs) if watch else None
    with _one_call(threads) as (warned, stderr):
        try:
            returned = call(*positional, **keywords)
            outcome = _describe(stage, returned, inputs, warned, watch)
        except SystemExit as error:
            kind = "SystemExit" if error.code == 2 else f"SystemExit({error.code})"
            outcome = Outcome(failure=Failure(kind, _parser_message(stderr.getvalue())))
        except Exception as error:
            outcome = Outcome(failure=Failure(type(error).__name__, str(error)))
    after = snapshot(inputs) if watch else None
    return outcome if after == before else replace(outcome, mutated=changes(before, after))


def _describe(
    stage: Stage, returned: Any, inputs: Mapping[str, Any], warned: list[warnings.WarningMessage], watch: bool
) -> Outcome:
    """Results as arrays or texts; gradients where the stage has them; which results and inputs share memory."""
    if stage.as_text is not None:
        messages = sorted({str(warning.message) for warning in warned})
        return Outcome(texts={**stage.as_text(returned), **({"warnings": "\n".join(messages)} if messages else {})})
    results = named_results(stage, returned)
    tensors = {key: tensor for name, value in results.items() for key, tensor in as_tensors(name, value).items()}
    shared = _shared_lists(results, inputs) | _shared_memory(tensors, _input_tensors(inputs)) if watch else set()
    arrays = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    if stage.differentiate is not None:
        name, leaves = f"grad.{stage.differentiate}", inputs[stage.differentiate]
        arrays.update(_gradients(name, results[stage.results[0]], leaves))
        for also in stage.also_differentiated:
            arrays.update(_gradients(f"{name}.{also}", results[also], leaves))
    devices = {tensor.device for tensor in _input_tensors(inputs).values()}
    elsewhere = [name for name, tensor in tensors.items() if tensor.numel() and {tensor.device} != devices]
    return Outcome(arrays=arrays, aliases=frozenset(shared), elsewhere=tuple(elsewhere) if devices else ())


def _gradients(name: str, result: Any, leaves: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """``name[i]``: the gradient of the result's sum; zeros where the result does not depend on the input at all."""
    total = sum(tensor.sum() for tensor in as_tensors("result", result).values())
    if isinstance(total, torch.Tensor) and total.requires_grad and leaves:
        gradients = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
    else:
        gradients = tuple(torch.zeros_like(leaf) for leaf in leaves)
    return {f"{name}[{index}]": gradient.detach().cpu().clone() for index, gradient in enumerate(gradients)}


def _shared_lists(results: Mapping[str, Any], inputs: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Pairs of results, or of a result and an input, that are the very same list."""
    lists = [(name, value) for name, value in results.items() if isinstance(value, list)]
    others = [(f"input.{name}", value) for name, value in inputs.items() if isinstance(value, list)]
    return {
        (name, other_name)
        for place, (name, value) in enumerate(lists)
        for other_name, other in lists[place + 1 :] + others
        if value is other
    }


def _shared_memory(results: Mapping[str, torch.Tensor], inputs: Mapping[str, torch.Tensor]) -> set[tuple[str, str]]:
    """Pairs that are the same tensor object or whose elements overlap in memory.

    Neighbouring slices of one batched buffer are no alias: writing to one does not show in the other.
    """
    by_storage: dict[int, list[tuple[str, torch.Tensor, bool]]] = {}
    for named, is_result in ((results, True), (inputs, False)):
        for name, tensor in named.items():
            key = tensor.untyped_storage().data_ptr() if tensor.numel() else -id(tensor)
            by_storage.setdefault(key, []).append((name, tensor, is_result))
    return {
        (name, other_name)
        for sharing in by_storage.values()
        for place, (name, tensor, is_result) in enumerate(sharing)
        if is_result
        for other_name, other, _ in sharing[place + 1 :]
        if tensor is other or _overlap(tensor, other)
    }


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_contiguous() and b.is_contiguous():
        a_start, b_start = a.data_ptr(), b.data_ptr()
        return a_start < b_start + b.numel() * b.element_size() and b_start < a_start + a.numel() * a.element_size()
    return not _addresses(a).isdisjoint(_addresses(b))


def _addresses(tensor: torch.Tensor) -> set[int]:
    """The byte address of each element."""
    offsets = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = offsets.unsqueeze(-1) + torch.arange(size) * stride  # [..., size]
    return set((offsets.reshape(-1) * tensor.element_size() + tensor.data_ptr()).tolist())


def _placed(value: Any, place: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_placed(item, place) for item in value]
    return place(value) if isinstance(value, torch.Tensor) else value


def _input_tensors(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors that stand directly in the inputs or in a list of them."""
    named: dict[str, torch.Tensor] = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            named[f"input.{name}"] = value
        elif isinstance(value, list):
            named.update({f"input.{name}[{i}]": item for i, item in enumerate(value) if isinstance(item, torch.Tensor)})
    return named


def _parser_message(stderr: str) -> str:
    """The parser's complaint without the usage lines, whose wrapping depends on the width of the terminal."""
    complaint = stderr.rpartition(": error: ")[2] or stderr
    return " ".join(complaint.split())


@contextlib.contextmanager
def _one_call(threads: int) -> Iterator[tuple[list[warnings.WarningMessage], io.StringIO]]:
    """A call's surroundings: a fixed number of threads, warnings collected, standard error caught; all restored."""
    previous = torch.get_num_threads()
    stderr = io.StringIO()
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stderr(stderr):
        warnings.simplefilter("always")
        torch.set_num_threads(threads)
        try:
            yield warned, stderr
        finally:
            torch.set_num_threads(previous)
