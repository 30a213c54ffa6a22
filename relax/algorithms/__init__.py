"""Algorithms of policy optimization: a declarative registry and the pure functions that it names.

Only the registry is offered here, since it costs no import beyond the standard library's; the functions are in the
modules beside it.
"""

from relax.algorithms.spec import ALGORITHM_SPECS, AlgorithmSpec, get_algorithm, list_algorithm_names

__all__ = ["ALGORITHM_SPECS", "AlgorithmSpec", "get_algorithm", "list_algorithm_names"]
