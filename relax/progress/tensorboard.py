"""Metrics as TensorBoard's scalars."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relax.progress.numbers import Row

FORMAT = "brain.Event:2"  # what TensorBoard wants a file of events to begin with


class TensorBoard:
    """A file of events in ``folder``, made with the first row; ``number`` is the metric that counts the steps.

    Of a run that goes on, TensorBoard leaves out what was written before of the steps from ``first`` on. Rows are
    written by this thread, whole: TensorBoard's own writer tells of a full disk in a thread, with a traceback.
    """

    def __init__(self, folder: Path, number: str, *, first: int | None = None) -> None:
        self._folder, self._number, self._first = folder, number, first
        self._path: Path | None = None

    def step(self, row: Row) -> None:
        """Writes one row. Raises OSError."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        events = [] if self._path else list(self._head())
        if self._path is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            of_this_run = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
            self._path = self._folder / f"events.out.tfevents.{of_this_run}"
        with self._path.open("ab") as file:
            writer = RecordWriter(file)
            for event in (*events, self._scalars(row)):
                writer.write(event.SerializeToString())

    def _head(self) -> Iterator[Any]:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        yield Event(wall_time=time.time(), file_version=FORMAT)
        if self._first is not None:
            yield Event(
                wall_time=time.time(), step=self._first, session_log=SessionLog(status=SessionLog.SessionStatus.START)
            )

    def _scalars(self, row: Row) -> Any:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != self._number]
        return Event(wall_time=time.time(), step=int(row[self._number]), summary=Summary(value=values))
