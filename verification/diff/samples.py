"""What can be taken away from or simplified in the samples of a reward stage, so that whole groups stay whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from verification.cases.case import Case
from verification.cases.families import NO_GROUPS
from verification.diff.passes import Edits, Pass, removal
from verification.diff.simpler import simpler_objects

SIZE, KEYS, WEIGHTS, KEY = "n_samples_per_prompt", "gdpo_reward_keys", "gdpo_reward_weights", "reward_key"
_KEPT = ("reward", "group_index")


def sample_passes(case: Case) -> Iterator[Pass]:
    """In the order in which they pay: groups, members of each, samples; then what a sample holds; then numbers."""
    yield removal(_groups(case), lambda gone: _with(case, lambda place, label: label not in gone))
    yield removal(_ranks(case), lambda gone: _without_ranks(case, gone))
    yield removal(_single(case), lambda gone: _with(case, lambda place, label: place not in gone))
    yield removal(case.options.get(KEYS) or (), lambda gone: _without_components(case, gone))
    yield removal(_unused(case), lambda gone: _without_parts(case, gone))
    yield removal(_other_labels(case), lambda gone: _relabelled(case))
    yield Pass(_numbers(case), lambda edits: _with_numbers(case, edits))


def sample_size(case: Case) -> tuple[int, int]:
    """How many samples, and how many values their rewards hold."""
    samples = _samples(case)
    values = [len(reward) if isinstance(reward := one.get("reward"), Mapping) else 1 for one in samples]
    return len(samples), sum(values)


def _samples(case: Case) -> tuple[Mapping[str, Any], ...]:
    return tuple(case.inputs["samples"])


def _case(case: Case, samples: list[dict[str, Any]], **options: Any) -> Case | None:
    if not samples:
        return None
    return replace(case, inputs={**case.inputs, "samples": tuple(samples)}, options={**case.options, **options})


def _with(case: Case, keep: Callable[[int, str], bool]) -> Case | None:
    """The samples for which ``keep(position, label)``."""
    kept = [dict(one) for place, one in enumerate(_samples(case)) if keep(place, _label(one))]
    return _case(case, kept)


def _label(sample: Mapping[str, Any]) -> str:
    return repr(sample.get("group_index"))  # a label of a malformed case may be no key of a mapping


def _groups(case: Case) -> dict[str, list[int]]:
    """The positions of each group's samples, by its label."""
    groups: dict[str, list[int]] = {}
    for place, sample in enumerate(_samples(case)):
        groups.setdefault(_label(sample), []).append(place)
    return groups


def _are_whole(case: Case) -> bool:
    """Whether every group has the size that the options say."""
    return {len(places) for places in _groups(case).values()} == {case.options.get(SIZE)}


def _smallest_group(case: Case) -> int:
    """A group of one compares with nothing: where groups are compared the command line refuses it."""
    return 1 if case.algorithm in NO_GROUPS else 2


def _ranks(case: Case) -> range:
    """The places within a group, where all groups are whole and can be smaller."""
    size = case.options.get(SIZE, 0)
    return range(size) if _are_whole(case) and size > _smallest_group(case) else range(0)


def _single(case: Case) -> range:
    """The samples, where groups are not whole already: otherwise they would no longer be."""
    return range(0) if _are_whole(case) else range(len(_samples(case)))


def _without_ranks(case: Case, gone: Edits) -> Case | None:
    size = case.options[SIZE] - len(gone)
    if size < _smallest_group(case):
        return None
    lost = {places[rank] for places in _groups(case).values() for rank in gone}
    samples = [dict(one) for place, one in enumerate(_samples(case)) if place not in lost]
    return _case(case, samples, **{SIZE: size})


def _without_components(case: Case, gone: Edits) -> Case | None:
    """Without these keys, their weights, and what the rewards hold under them."""
    keys, weights = list(case.options[KEYS]), case.options.get(WEIGHTS)
    kept = [place for place, key in enumerate(keys) if key not in gone]
    if not kept or (weights is not None and len(weights) != len(keys)):
        return None
    changed: dict[str, Any] = {KEYS: [keys[place] for place in kept]}
    if weights is not None:
        changed[WEIGHTS] = [weights[place] for place in kept]
    parts = {("reward", key): None for key in gone}
    smaller = _without_parts(case, parts)
    return None if smaller is None else replace(smaller, options={**smaller.options, **changed})


def _unused(case: Case) -> list[Any]:
    """Fields of a sample beside its reward and group, and reward components that nothing names."""
    named = {*(case.options.get(KEYS) or ()), case.options.get(KEY)}
    found: dict[Any, None] = {}
    for sample in _samples(case):
        found |= {field: None for field in sample if field not in _KEPT}
        if isinstance(sample.get("reward"), Mapping):
            found |= {("reward", key): None for key in sample["reward"] if key not in named}
    return list(found)


def _without_parts(case: Case, gone: Edits) -> Case | None:
    samples = []
    for sample in _samples(case):
        kept = {field: value for field, value in sample.items() if field not in gone}
        if isinstance(kept.get("reward"), Mapping):
            kept["reward"] = {key: value for key, value in kept["reward"].items() if ("reward", key) not in gone}
        samples.append(kept)
    return _case(case, samples)


def _other_labels(case: Case) -> list[Any]:
    """One spot where the groups are not called 0, 1, ... in the order of their first samples."""
    labels = [sample.get("group_index") for sample in _samples(case)]
    return ["labels"] if None not in labels and labels != _plain_labels(case) else []


def _plain_labels(case: Case) -> list[int]:
    numbers = {label: number for number, label in enumerate(_groups(case))}
    return [numbers[_label(sample)] for sample in _samples(case)]


def _relabelled(case: Case) -> Case | None:
    plain = zip(_samples(case), _plain_labels(case), strict=True)
    return _case(case, [{**sample, "group_index": label} for sample, label in plain])


def _numbers(case: Case) -> dict[Any, dict[str, Any]]:
    """Rewards, their components, and the weights of components."""
    found: dict[Any, dict[str, Any]] = {}
    for place, sample in enumerate(_samples(case)):
        for field in ("reward", "custom_advantage"):
            value = sample.get(field)
            parts = value.items() if isinstance(value, Mapping) else [(None, value)]
            found |= {(place, field, key): simpler_objects(part) for key, part in parts}
    weights = case.options.get(WEIGHTS)
    if isinstance(weights, list | tuple):
        found |= {(WEIGHTS, place): simpler_objects(weight) for place, weight in enumerate(weights)}
    return {spot: others for spot, others in found.items() if others}


def _with_numbers(case: Case, edits: Edits) -> Case | None:
    samples = [dict(sample) for sample in _samples(case)]
    weights = list(case.options.get(WEIGHTS) or ())
    for spot, value in edits.items():
        match spot:
            case (int(place), str(field), None):
                samples[place][field] = value
            case (int(place), str(field), key):
                samples[place][field] = {**samples[place][field], key: value}
            case (_, int(place)):
                weights[place] = value
    return _case(case, samples, **({WEIGHTS: weights} if weights else {}))
