"""The one rule on reward components: their names, and the weight of each. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax.option_ranges import finite_double

KEYS = "--gdpo-reward-keys"
WEIGHTS = "--gdpo-reward-weights"


def check_components(keys: Sequence[str] | None, weights: Sequence[float] | None) -> list[float]:
    """One finite double for each key, in the order of the keys; all 1 where ``weights`` is None.

    Raises ValueError, one line that names both options and the remedy: fewer than two keys, one that is no text, is
    blank or named twice; another number of weights than of keys, one that is no finite real number, or zeros alone.
    """
    named = _checked_keys(keys)
    if weights is None:
        return [1.0] * len(named)
    shown = f"{KEYS} {' '.join(named)} and {WEIGHTS}"
    given = _listed(weights)
    if given is None:
        raise ValueError(f"{shown} {weights!r}: that is no list of numbers; give one weight a key, or none at all")
    shown = f"{shown} {' '.join(map(_shown, given)) or '(empty)'}"
    if len(given) != len(named):
        counts = f"the number of weights is {len(given)}, that of keys {len(named)}"
        raise ValueError(f"{shown}: {counts}; give one weight a key, in the order of the keys")
    numbers = []
    for position, weight in enumerate(given):
        number = finite_double(weight)
        if number is None:
            raise ValueError(f"{shown}: weight {position} is {_shown(weight)}; give finite real numbers")
        numbers.append(number)
    if not any(numbers):
        raise ValueError(f"{shown}: with all weights 0 nothing is learnt; give at least one that is not 0")
    return numbers


def _checked_keys(keys: Any) -> list[str]:
    named = _listed(() if keys is None else keys)
    if named is None:
        raise ValueError(f"{KEYS} {keys!r}: that is no list of names; give two or more, and {WEIGHTS} as many")
    if not all(isinstance(key, str) and key.strip() for key in named):
        raise ValueError(f"{KEYS} {named!r}: a key is blank or no text; name every component, as {WEIGHTS} counts them")
    shown = f"{KEYS} {' '.join(named) or '(not given)'}"
    if len(named) < 2:
        reason = "this algorithm combines two or more reward components"
        raise ValueError(f"{shown}: {reason}; name them all, separated by spaces, and give {WEIGHTS} none or as many")
    repeated = [key for position, key in enumerate(named) if key in named[:position]]
    if repeated:
        remedy = f"name each once, and say how much it counts with {WEIGHTS}"
        raise ValueError(f"{shown}: {', '.join(sorted(set(repeated)))} is named more than once; {remedy}")
    return named


def _listed(values: Any) -> list[Any] | None:
    """The entries of a sequence or an array; None for a text, or for what has no order or no entries."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    return list(listed) if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else None


def _shown(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # an int with more digits than Python prints
        return f"an int of {value.bit_length()} bits"
