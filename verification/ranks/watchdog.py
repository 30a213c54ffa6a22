"""What a rank that gives no answer is doing: its stacks, asked for by a signal, and the collective that it is in."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import torch

from verification.ranks import faults, tracing, worker
from verification.ranks.messages import STACK_SIGNAL, Post
from verification.ranks.results import Hung, RankResult
from verification.ranks.tracing import read_trace

STACK_PATIENCE = 1.0  # seconds for a rank to write down its stacks
_FRAME = re.compile(r'  File "(?P<file>.*)", line \d+ in .*')
_OWN = {Path(module.__file__) for module in (faults, tracing, worker) if module.__file__}
_LIBRARIES = {Path(os.__file__).parent, Path(torch.__file__).parent}


def look_at(post: Post, pid: int) -> RankResult:
    """The result of a rank that is stuck. It is asked, not touched: the caller kills it."""
    stack = _ask_for_stack(post.stack, pid)
    trace = read_trace(post.trace)
    frames = tuple(line for line in stack.splitlines() if _is_of_a_user(line))
    hung = Hung(stack or "it gave no stack", trace.inside, frames)
    return RankResult(post.rank, hung=hung, collectives=trace.entered, fault_fired=trace.fault_fired)


def _ask_for_stack(path: Path, pid: int) -> str:
    """The stacks of all threads of ``pid``, which writes them to ``path`` on a signal; empty where it does not."""
    try:
        os.kill(pid, STACK_SIGNAL)
    except ProcessLookupError:
        return ""
    text, until = "", time.monotonic() + STACK_PATIENCE
    while time.monotonic() < until:
        time.sleep(0.01)
        before, text = text, path.read_text(errors="replace") if path.exists() else ""
        if text and text == before:
            break
    return text


def _is_of_a_user(line: str) -> bool:
    """Whether a line of a stack is a frame of the code under examination, or of a package that it uses."""
    frame = _FRAME.fullmatch(line)
    if frame is None:
        return False
    file = Path(frame["file"])
    library = bool(_LIBRARIES & set(file.parents)) and "megatron" not in file.parts
    return file.is_absolute() and file not in _OWN and not library
