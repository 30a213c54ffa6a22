"""The queue of a run within one process: the methods of `relax.transport.queue.Queue`, for tests without Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relax.transport.queue import TransportError
from relax.transport.values import from_bytes, to_bytes


class LocalQueue:
    """Rows in a dictionary, encoded as they are on their way between processes."""

    def __init__(self, *, once: bool = False) -> None:
        """``once``: a column that a row has already is refused, where else it is replaced."""
        self.rows: dict[str, dict[str, bytes]] = {}
        self.once = once

    def put(self, keys: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds columns to rows, which are made where they are not there."""
        if len(set(keys)) < len(keys):
            raise TransportError("a row is named twice in one put to the queue")
        for name, column in columns.items():
            if len(column) != len(keys):
                raise TransportError(f"column {name!r} has {len(column)} values for {len(keys)} rows of the queue")
        for position, key in enumerate(keys):
            for name, column in columns.items():
                if self.once and name in self.rows.get(key, {}):
                    raise TransportError(f"column {name!r} of row {key!r} is there already: it is put once")
                try:
                    encoded = to_bytes(column[position])
                except TypeError as error:
                    raise TransportError(
                        f"column {name!r} of row {key!r} cannot be put into the queue: {error}"
                    ) from error
                self.rows.setdefault(key, {})[name] = encoded

    def get(self, keys: Sequence[str], names: Sequence[str]) -> dict[str, list[Any]]:
        """Columns of rows, in the order of ``keys``."""
        for key in keys:
            self._require(key)
            for name in names:
                if name not in self.rows[key]:
                    raise TransportError(f"row {key!r} of the queue has no column {name!r}: no role has put it")
        return {name: [from_bytes(self.rows[key][name]) for key in keys] for name in names}

    def keys(self) -> list[str]:
        """The rows held now, sorted."""
        return sorted(self.rows)

    def drop(self, keys: Sequence[str]) -> None:
        """Forgets rows, each of which must be there."""
        for key in keys:
            self._require(key)
        for key in keys:
            del self.rows[key]

    def _require(self, key: str) -> None:
        if key not in self.rows:
            raise TransportError(f"row {key!r} is not in the queue: it was never put, or it was dropped")
