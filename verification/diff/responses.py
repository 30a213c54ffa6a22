"""What can be taken away from or simplified in a batch of responses, so that its lists go on to fit each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from verification.cases.case import Case, bfloat16_values
from verification.diff.passes import Edits, Pass, removal
from verification.diff.simpler import simpler, simpler_objects

PLAN, LOGITS, TOKENS = "mini_batch_sizes", "logits", "tokens"
LENGTHS = ("response_lengths", "total_lengths", "padded_total_lengths")
OPTIONAL = ("loss_masks", "full_loss_masks", "rollout_log_probs", "ref_log_probs", "importance_ratios")
# What a number of these inputs means, where not every number is one of them.
_MEANING: dict[str, Callable[[float], bool]] = {
    "log_probs": lambda value: value <= 0,
    "old_log_probs": lambda value: value <= 0,
    "ref_log_probs": lambda value: value <= 0,
    "rollout_log_probs": lambda value: value <= 0,
    "importance_ratios": lambda value: value > 0,
    "loss_masks": lambda value: value == 1,  # the simplest mask is one that masks nothing
    "full_loss_masks": lambda value: value == 1,
    TOKENS: lambda value: value == 0,
}


def response_passes(case: Case) -> Iterator[Pass]:
    """In the order in which they pay: responses, tokens, the vocabulary, optimizer batches, inputs; then numbers."""
    yield removal(range(response_count(case)), lambda gone: _without_responses(case, gone))
    yield removal(_tokens(case), lambda gone: _without_tokens(case, gone))
    yield removal(range(_vocabulary(case)), lambda gone: _without_entries(case, gone))
    yield removal(range(len(_plan(case)) - 1), lambda gone: _merged(case, gone))
    yield removal(
        [name for name in OPTIONAL if case.inputs.get(name) is not None],
        lambda gone: _changed(case, {name: None for name in case.inputs if name in gone}),
    )
    yield Pass(_numbers(case), lambda edits: _with_numbers(case, edits))


def response_size(case: Case) -> tuple[int, int]:
    """How many responses, and how many numbers their lists hold."""
    values = [item for name, listed in _lists(case).items() if name not in LENGTHS for item in listed]
    return response_count(case), sum(item.size if isinstance(item, np.ndarray) else 1 for item in values)


def response_count(case: Case) -> int:
    """The number of responses: the length of the longest list."""
    return max(map(len, _lists(case).values()), default=0)


def _lists(case: Case) -> dict[str, list[Any]]:
    """The inputs that hold one entry a response."""
    return {name: list(v) for name, v in case.inputs.items() if isinstance(v, list | tuple) and name != PLAN}


def _plan(case: Case) -> list[int]:
    """The sizes of the optimizer batches; none where they are no counts."""
    sizes = case.inputs.get(PLAN)
    if isinstance(sizes, list | tuple) and all(type(size) is int and size >= 0 for size in sizes):
        return list(sizes)
    return []


def _changed(case: Case, inputs: dict[str, Any]) -> Case:
    return replace(case, inputs={**case.inputs, **inputs})


def _without_responses(case: Case, gone: Edits) -> Case | None:
    """Each list without these places, and the optimizer batches that they belonged to smaller."""
    if len(gone) == response_count(case):
        return None
    changed: dict[str, Any] = {
        name: [item for place, item in enumerate(listed) if place not in gone] for name, listed in _lists(case).items()
    }
    sizes, start = _plan(case), 0
    for batch, size in enumerate(list(sizes)):
        sizes[batch] -= sum(place in gone for place in range(start, start + size))
        start += size
    return _changed(case, {**changed, **({PLAN: sizes} if sizes else {})})


def _length(case: Case, response: int) -> int:
    """The tokens of the longest array of a response."""
    arrays = [listed[response] for listed in _lists(case).values() if response < len(listed)]
    return max((len(array) for array in arrays if isinstance(array, np.ndarray) and array.ndim), default=0)


def _tokens(case: Case) -> list[tuple[int, int]]:
    """All but those of responses of one token: an empty response is another input, which some formulas refuse."""
    lengths = [_length(case, response) for response in range(response_count(case))]
    return [(response, token) for response, length in enumerate(lengths) if length > 1 for token in range(length)]


def _without_tokens(case: Case, gone: Edits) -> Case:
    """Each array of a response without these tokens, and its lengths as much smaller; the last of all tokens stays."""
    changed = {name: list(listed) for name, listed in _lists(case).items()}
    for response in range(response_count(case)):
        length = _length(case, response)
        lost = [token for token in range(length) if (response, token) in gone][: length - 1]
        for name, listed in changed.items():
            if not lost or response >= len(listed):
                continue
            item = listed[response]
            if isinstance(item, np.ndarray):
                listed[response] = np.delete(item, [token for token in lost if token < len(item)], axis=0)
            elif name in LENGTHS and type(item) is int:
                listed[response] = item - len(lost)
    return _changed(case, changed)


def _vocabulary(case: Case) -> int:
    sizes = {array.shape[1] for array in case.inputs.get(LOGITS, ()) if array.ndim == 2}
    return sizes.pop() if len(sizes) == 1 else 0


def _without_entries(case: Case, gone: Edits) -> Case | None:
    """Without these entries of the vocabulary; a token that was one of them becomes the next one, or the last."""
    size, kept = _vocabulary(case), [entry for entry in range(_vocabulary(case)) if entry not in gone]
    if not kept:
        return None
    renamed = [min(sum(one < entry for one in kept), len(kept) - 1) for entry in range(size)]
    tokens = []
    for ids in case.inputs[TOKENS]:
        inside = (ids >= 0) & (ids < size)
        tokens.append(np.where(inside, np.array(renamed)[np.clip(ids, 0, size - 1)], ids).astype(ids.dtype))
    return _changed(case, {LOGITS: [rows[:, kept] for rows in case.inputs[LOGITS]], TOKENS: tokens})


def _merged(case: Case, gone: Edits) -> Case:
    """The optimizer batches at these places joined with the next one each."""
    sizes: list[int] = []
    waiting = 0
    for place, size in enumerate(_plan(case)):
        waiting += size
        if place not in gone:
            sizes.append(waiting)
            waiting = 0
    return _changed(case, {PLAN: sizes})


def _numbers(case: Case) -> dict[Any, dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    for name, listed in _lists(case).items():
        if name in LENGTHS:
            continue
        means = _MEANING.get(name, lambda value: True)
        for place, item in enumerate(listed):
            if not isinstance(item, np.ndarray):
                found[name, place, None] = {k: v for k, v in simpler_objects(item).items() if means(v)}
                continue
            for index, value in enumerate(_floats(item)):
                # A mask's 1 is simpler than its 0, and a token's 0 is the simplest there is.
                others = {"1": 1.0} if "mask" in name and value != 1 else simpler(value)
                found[name, place, index] = {k: v for k, v in others.items() if means(v)}
    return {spot: others for spot, others in found.items() if others}


def _floats(array: np.ndarray) -> list[float]:
    flat = array.reshape(-1)
    return (bfloat16_values(flat) if array.dtype == np.uint16 else flat).astype(np.float64).tolist()


def _with_numbers(case: Case, edits: Edits) -> Case:
    changed = _lists(case)
    copied: set[tuple[str, int]] = set()
    for spot, value in edits.items():
        match spot:
            case (str(name), int(place), None):
                changed[name][place] = value
            case (str(name), int(place), int(index)):
                if (name, place) not in copied:
                    copied.add((name, place))
                    changed[name][place] = changed[name][place].copy()
                _put(changed[name][place], index, value)
    return _changed(case, changed)


def _put(array: np.ndarray, index: int, value: float) -> None:
    if array.dtype == np.uint16:  # the upper half of a float32 is a bfloat16
        array.reshape(-1)[index] = np.float32(value).view(np.uint32) >> 16
    else:
        array.reshape(-1)[index] = value
