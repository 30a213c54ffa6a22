"""How many ranks a world has, and what each of them is: its places along the four kinds of parallelism."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_PART = re.compile(r"(dp|tp|cp|pp)([1-9][0-9]*)")
_SINGLE = "one"


@dataclass(frozen=True)
class Layout:
    """Sizes of tensor, context, pipeline and data parallelism; their product is the number of ranks.

    Ranks are counted in Megatron's default order ``tp-cp-ep-dp-pp`` without expert parallelism: neighbouring ranks
    differ in tensor parallelism, then in context parallelism, then in data, last in pipeline parallelism.
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for kind in ("tp", "cp", "pp", "dp"):
            size = getattr(self, kind)
            if type(size) is not int or size < 1:
                raise ValueError(f"the {kind} of a layout is {size!r}: a size is a whole number from 1")

    @property
    def world(self) -> int:
        """The number of ranks."""
        return math.prod((self.tp, self.cp, self.pp, self.dp))

    @property
    def name(self) -> str:
        """The sizes above one, such as ``dp2-cp2``; ``one`` for a single rank."""
        sizes = {"dp": self.dp, "tp": self.tp, "cp": self.cp, "pp": self.pp}
        return "-".join(f"{kind}{size}" for kind, size in sizes.items() if size > 1) or _SINGLE

    @classmethod
    def parse(cls, name: str) -> Layout:
        """The layout called ``name``; kinds in any order. A ValueError shows what a name looks like."""
        parts = [] if name == _SINGLE else [_PART.fullmatch(part) for part in name.split("-")]
        sizes = {part[1]: int(part[2]) for part in parts if part is not None}
        if len(sizes) != len(parts):
            example = f"{_SINGLE!r}, or sizes of dp, tp, cp and pp, each once, as in 'dp2-cp2'"
            raise ValueError(f"{name!r} names no layout: write {example}")
        return cls(**sizes)

    @property
    def needs_megatron(self) -> bool:
        """Whether there is more to it than data parallelism, which the default group of a world already is."""
        return self.dp != self.world

    def coordinates(self, rank: int) -> tuple[int, int, int, int]:
        """The places of ``rank`` along tensor, context, data and pipeline parallelism."""
        if not 0 <= rank < self.world:
            raise ValueError(f"layout {self.name} has ranks 0 to {self.world - 1}, not {rank}")
        rest, tp = divmod(rank, self.tp)
        rest, cp = divmod(rest, self.cp)
        pp, dp = divmod(rest, self.dp)
        return tp, cp, dp, pp
