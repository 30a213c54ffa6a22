"""Where a golden holds: everywhere, or on platforms whose arithmetic has the same bits as the one that recorded it."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from verification.cases.case import Case
from verification.goldens.values import words

ANY = "any"
_STAGES_WITHOUT_ROUNDING = frozenset({"reward.signal", "arguments.validate", "roles.resolve"})
_CORRECTLY_ROUNDED = frozenset({"component_groups", "leave_one_out", "whitened_broadcast"})


def platform_of(case: Case, key: str | None = None) -> str:
    """The platform under which the outcome of ``case`` is recorded: `ANY`, or ``key``, the CPU's unless given.

    `ANY` where the definition leaves every platform one answer: malformed input (the outcome is an error), stages
    that compare or look up and never round, and what is correctly rounded: ``exact_statistics`` in the reward stage,
    and the algorithms whose formula always is. Everything else is float arithmetic whose last bit is the platform's.
    """
    return ANY if holds_everywhere(case) else key or platform_key()


def holds_everywhere(case: Case) -> bool:
    """Whether the outcome of ``case`` has the same bits on every platform; see `platform_of`."""
    if case.error is not None or case.stage in _STAGES_WITHOUT_ROUNDING:
        return True
    from relax.algorithms.spec import get_algorithm  # here, since the key is asked for beside revisions without it

    spec = get_algorithm(case.algorithm)
    if case.stage == "reward.normalize":
        return case.options.get("exact_statistics", False) or spec.reward_normalizer in _CORRECTLY_ROUNDED
    return case.stage == "advantage.estimate" and spec.advantage_fn in _CORRECTLY_ROUNDED


@functools.cache
def platform_key(device: str = "cpu") -> str:
    """``BACKEND-torchVERSION-CAPABILITY-DIGEST``: ``cpu-torch2.13.0-avx2-1a2b3c4d``, ``cuda-torch2.13.0-sm90-...``.

    The digest covers the bits of `probe_results`: two machines with the same key agreed on every probe.
    """
    version = torch.__version__.split("+")[0]
    hasher = hashlib.sha256()
    for name, result in probe_results(device).items():
        hasher.update(f"{name} {result.dtype} {list(result.shape)} {words(result)}\n".encode())
    plain = re.sub(r"[^a-z0-9]+", "", capability(device).lower())
    return f"{torch.device(device).type}-torch{version}-{plain}-{hasher.hexdigest()[:8]}"


def capability(device: str = "cpu") -> str:
    """What the device's kernels are chosen by: the instructions of the CPU, the compute capability of a GPU."""
    if torch.device(device).type == "cpu":
        return torch.backends.cpu.get_cpu_capability()
    return "sm" + "".join(map(str, torch.cuda.get_device_capability(device)))


def probe_results(device: str = "cpu") -> dict[str, torch.Tensor]:
    """The probe operations by name, run on one thread on inputs made from integers."""
    with one_thread(), torch.no_grad():
        return {name: probe() for name, probe in _probes(device).items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs the body with one torch thread and gives the caller's number back, whatever happens inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _integers(count: int, scale: float) -> torch.Tensor:
    """``count`` float32 values in [-scale, scale): a linear congruential sequence, exact on every machine."""
    state, values = 12345, []
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        values.append((state >> 7) - 2**23)
    return torch.tensor(values, dtype=torch.float32) * (scale / 2**23)


def _probes(device: str) -> dict[str, Callable[[], torch.Tensor]]:
    small, medium, long = (_integers(*made).to(device) for made in ((7, 1.0), (129, 4.0), (4099, 4.0)))
    square = _integers(128 * 128, 1.0).reshape(128, 128).to(device)
    return {
        "sum 7": lambda: small.sum(),
        "sum 129": lambda: medium.sum(),
        "sum 4099": lambda: long.sum(),
        "sum rows": lambda: square.sum(dim=1),
        "sum columns": lambda: square.sum(dim=0),
        "mean": lambda: torch.stack([small.mean(), medium.mean(), long.mean()]),
        "std": lambda: torch.stack([small.std(), medium.std(), long.std()]),
        "std rows": lambda: square.std(dim=1),
        "exp": lambda: medium.exp(),
        "log": lambda: medium.abs().log(),
        "sigmoid": lambda: medium.sigmoid(),
        "log_softmax": lambda: square.log_softmax(dim=-1),
        "rsqrt": lambda: medium.abs().rsqrt(),
        "power": lambda: 0.95 ** torch.arange(129, dtype=torch.float32, device=device),
        "matrix product": lambda: square @ square,
        "matrix product thin": lambda: square[:3] @ square,
        "multiply and add": lambda: medium * medium.flip(0) + medium,
    }
