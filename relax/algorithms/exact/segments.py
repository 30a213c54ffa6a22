"""GDPO's step 3 over the optimizer batches of a rollout and over all ranks: two collectives, however many batches."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch

from relax.algorithms.collective import Collective, LocalCollective, collective_for
from relax.algorithms.exact.batch import require_proven
from relax.algorithms.exact.gdpo import whiten

PROTOCOL_VERSION = 1
_FINE, _NO_SIZES, _BAD_SIZE, _BAD_SUM, _BAD_DTYPE, _BAD_SHAPE, _NOT_FINITE, _BAD_IDS, _BAD_COUNT = range(9)
_COMPLAINTS = {
    _NO_SIZES: "mini_batch_sizes is None: give the number of samples that it holds of each optimizer batch",
    _BAD_SIZE: "mini_batch_sizes[{position}] is not an int of 0 or more",
    _BAD_SUM: "mini_batch_sizes sum to {position}, but it holds {samples} samples",
    _BAD_DTYPE: "its values are not float32",
    _BAD_SHAPE: "its values are not one-dimensional",
    _NOT_FINITE: "value {position} is not finite",
    _BAD_IDS: "batch_ids are not one str for each optimizer batch",
    _BAD_COUNT: "it holds {samples} values for {position} responses",
}


def whiten_scalar(values: torch.Tensor, *, process_group: Any = None) -> torch.Tensor:
    """Step 3 over one batch that spans the ranks of ``process_group``, one vote a sample: float32 ``[n]`` to ``[n]``.

    Raises ValueError, the same on every rank, where any rank's values are not finite float32 ``[n]``.
    """
    sizes = [values.numel()] if isinstance(values, torch.Tensor) else []
    return whiten_segments(values, sizes, collective=collective_for(process_group))


def whiten_segments(
    values: torch.Tensor,
    mini_batch_sizes: Sequence[int] | None,
    *,
    collective: Collective | None = None,
    batch_ids: Sequence[str] | None = None,
    responses: int | None = None,
) -> torch.Tensor:
    """Step 3 for each optimizer batch: this rank's float32 ``[n]`` to ``[n]``, each the nearest float32.

    ``mini_batch_sizes``: how many of this rank's samples belong to each optimizer batch, in order; 0 where it owns
    nothing. Segment k must be the same optimizer batch on every rank: with ``batch_ids`` that is checked, without
    them the caller, who makes the plan of mini-batches, guarantees it. ``collective`` spans the data-parallel ranks
    without context or tensor parallelism, since each sample votes once. ``responses``: how many there must be.

    Whatever is wrong on one rank, all ranks meet in the first collective, and all raise the same ValueError, which
    lists each rank with its complaint.
    """
    collective = collective or LocalCollective()
    header, sizes = _header(values, mini_batch_sizes, batch_ids, responses)
    table = collective.gather(header).numpy()  # [ranks, 6]
    complaints = _complaints(table)
    if complaints:
        raise ValueError("whitening over the optimizer batch: " + "; ".join(complaints))
    n_segments, width = len(sizes), int(table[:, 4].max())
    buffer = torch.zeros(n_segments + width, dtype=torch.float64)
    buffer[:n_segments] = torch.tensor(sizes, dtype=torch.float64)
    buffer[n_segments : n_segments + values.numel()] = values.detach().to("cpu", torch.float64)
    shards = collective.gather(buffer).numpy()  # [ranks, segments + width]
    return torch.empty_like(values).copy_(torch.from_numpy(_own_slices(shards, n_segments, collective.rank)))


def _own_slices(shards: np.ndarray, n_segments: int, rank: int) -> np.ndarray:
    sizes, payload = shards[:, :n_segments].astype(np.int64), shards[:, n_segments:]
    held = np.arange(payload.shape[1]) < sizes.sum(axis=1, keepdims=True)
    segments = np.arange(n_segments, dtype=np.min_scalar_type(n_segments))  # small ones sort faster
    segment_of = np.repeat(np.tile(segments, len(shards)), sizes.ravel())
    values = payload[held][np.argsort(segment_of, kind="stable")].astype(np.float32)  # by segment, then by rank
    wholes, before = sizes.sum(axis=0), sizes[:rank].sum(axis=0)
    require_proven(wholes.max(initial=0))
    ends = wholes.cumsum()
    alike: dict[tuple[int, int, int], list[int]] = {}  # batches of one size, cut alike, are whitened together
    for segment in np.flatnonzero(sizes[rank]).tolist():
        alike.setdefault((wholes[segment], before[segment], sizes[rank, segment]), []).append(segment)
    mine = [values[:0]] * n_segments
    for (size, start, held), numbers in alike.items():
        batches = np.stack([values[ends[segment] - size : ends[segment]] for segment in numbers])
        for segment, whitened in zip(numbers, whiten(batches, slice(start, start + held)), strict=True):
            mine[segment] = whitened
    return np.concatenate(mine or [values[:0]])


def _header(
    values: torch.Tensor, sizes: Sequence[int] | None, batch_ids: Sequence[str] | None, responses: int | None
) -> tuple[torch.Tensor, list[int]]:
    """This rank's row of the table, int64 ``[6]``: version, status, position, segments, samples, hash of batch ids."""
    samples = values.numel() if isinstance(values, torch.Tensor) else 0
    plan, bad = _plan(sizes)
    status, position = _FINE, 0
    if not isinstance(values, torch.Tensor) or values.dtype != torch.float32:
        status = _BAD_DTYPE
    elif values.dim() != 1:
        status = _BAD_SHAPE
    elif sizes is None:
        status = _NO_SIZES
    elif bad is not None:
        status, position = _BAD_SIZE, bad
    elif sum(plan) != samples:
        status, position = _BAD_SUM, min(sum(plan), 2**62)
    elif not bool(torch.isfinite(values).all()):
        status, position = _NOT_FINITE, int(torch.isfinite(values).logical_not().nonzero()[0])
    elif batch_ids is not None and not _are_ids(batch_ids, len(plan)):
        status = _BAD_IDS
    elif responses is not None and responses != samples:
        status, position = _BAD_COUNT, responses
    digest = _hash(batch_ids) if batch_ids is not None and status == _FINE else 0
    row = [PROTOCOL_VERSION, status, position, len(plan), samples, digest]
    return torch.tensor(row, dtype=torch.int64), plan


def _plan(sizes: Any) -> tuple[list[int], int | None]:
    """The sizes as ints, and the position of the first that is not one of 0 or more, None where all are."""
    try:
        entries = list(sizes)
    except TypeError:
        return [], 0
    for position, size in enumerate(entries):
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
            return [], position
    return [int(size) for size in entries], None


def _are_ids(batch_ids: Any, count: int) -> bool:
    is_list = isinstance(batch_ids, Sequence) and not isinstance(batch_ids, str)
    return is_list and len(batch_ids) == count and all(isinstance(one, str) for one in batch_ids)


def _hash(batch_ids: Sequence[str]) -> int:
    digest = hashlib.blake2b(json.dumps(list(batch_ids)).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)


def _complaints(table: np.ndarray) -> list[str]:
    """What is wrong, rank by rank, with the headers int64 ``[ranks, 6]``."""
    if table[:, 1].any():
        return [
            f"rank {rank}: {_COMPLAINTS[status].format(position=position, samples=samples)}"
            for rank, (_, status, position, _, samples, _) in enumerate(table.tolist())
            if status != _FINE
        ]
    complaints = []
    for column, name in ((0, "protocol version"), (3, "number of optimizer batches"), (5, "hash of the batch ids")):
        values = table[:, column].tolist()
        common, count = Counter(values).most_common(1)[0]
        usual = [common] if 2 * count > len(values) else []  # with a majority only the others are listed
        unlike = [f"rank {rank}: {name} {value}" for rank, value in enumerate(values) if value not in usual]
        complaints += unlike + [f"all other ranks: {name} {value}" for value in usual if unlike]
    return complaints
