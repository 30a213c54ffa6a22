"""Statistics whose every output is the float32 nearest the exact value: nothing but the input decides its bits."""

from relax.algorithms.exact.gdpo import combine_group
from relax.algorithms.exact.segments import whiten_scalar, whiten_segments
from relax.algorithms.exact.tally import counters

__all__ = ["combine_group", "counters", "whiten_scalar", "whiten_segments"]
