"""Waiting for what may never answer: in a thread that nobody waits for, up to a deadline, with an eye on what dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

LOOK = 1.0  # seconds without an answer before `within` looks, and between its looks


class Overdue(TimeoutError):
    """There was no answer until the deadline."""


def in_thread(function: Callable[[], T]) -> Future[T]:
    """What comes of ``function()``, which runs in a thread that does not keep the process from ending."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def within(seconds: float, function: Callable[[], T], look: Callable[[], None] = lambda: None) -> T:
    """``function()``, or its error; `Overdue` after ``seconds``, or whatever ``look``, called meanwhile, raises."""
    future = in_thread(function)
    end = time.monotonic() + seconds
    while not wait([future], timeout=min(LOOK, seconds)).done:
        look()
        if time.monotonic() > end:
            raise Overdue(f"no answer within {seconds:g} s")
    return future.result()
