"""What the ranks do in the tests of the pool: functions of one argument, named ``tests.distributed.pool_tasks:...``."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from verification.ranks.worker import here


def give_back(argument: Any) -> Any:
    """Its argument."""
    return argument


def where(_: None) -> tuple[int, str, tuple[int, ...], int, int]:
    """What the rank knows of itself, and what its group and its process say."""
    me = here()
    return me.rank, me.layout.name, me.coordinates, dist.get_world_size(me.group), os.getpid()


def surroundings(names: list[str]) -> dict[str, Any]:
    """The state in which a function finds its process; which of ``names`` were imported before it came."""
    return {
        "imported": [name for name in names if name in sys.modules],
        "threads": torch.get_num_threads(),
        "stdin": sys.stdin.read(),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
        "main": sys.modules["__main__"].__dict__.get("__file__"),
    }


def threads_and_groups(_: None) -> tuple[list[str], int]:
    """The names of the threads of this process, as Linux has them, and the number of its process groups."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return names, len(dist.distributed_c10d._world.pg_map)


def fail(message: str | None) -> str:
    """A ValueError with the message, or the word fine without one."""
    if message is not None:
        raise ValueError(message)
    return "fine"


def end(how: str | None) -> str:
    """Ends its process in one of several ways; without one it says alive."""
    match how:
        case "exit":
            sys.exit(3)
        case "exit at once":
            os._exit(0)
        case "segmentation fault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
    return "alive"


def give_what_cannot_travel(_: None) -> Any:
    """A function without a name."""
    return lambda: None


def total(number: float) -> float:
    """The sum over ranks."""
    tensor = torch.tensor([number])
    dist.all_reduce(tensor, group=here().group)
    return tensor.item()


def gather(rounds: int) -> list[list[float]]:
    """Gathers the ranks' numbers, multiplied by the number of the round, in each of several rounds."""
    found = []
    for factor in range(1, rounds + 1):
        tensor = torch.tensor([float(factor * here().rank)], dtype=torch.float64)
        gathered = [torch.empty_like(tensor) for _ in range(here().layout.world)]
        dist.all_gather(gathered, tensor)
        found.append([one.item() for one in gathered])
    return found


def gather_then_fail(rounds: int) -> None:
    """The same error on every rank, after collectives that all of them joined."""
    gather(rounds)
    raise ValueError("the ranks agree that this is wrong")


def start_without_waiting(joins: bool) -> None:
    """Rank 0 alone starts a collective and goes away."""
    if joins:
        dist.all_reduce(torch.ones(1), async_op=True)


def linger(seconds: float) -> float:
    """Sleeps."""
    time.sleep(seconds)
    return seconds


def wait_for_others(joins: bool) -> None:
    """One collective of all, then a second one that only some ranks join."""
    dist.barrier()
    if joins:
        dist.all_reduce(torch.ones(2, 3))
    else:
        linger(600)


def receive_nothing(receives: bool) -> None:
    """A receive that nobody answers, and which knows no time-out."""
    if receives:
        dist.recv(torch.empty(5), src=1)


def spoil_own_data(spoils: bool) -> float:
    """A NaN on some ranks, counted as the fault that it is, in what is summed."""
    if spoils:
        here().fault_fired()
    return total(float("nan") if spoils else 1.0)


def spoil_and_die(_: None) -> None:
    """A fault that the process does not live to report."""
    here().fault_fired()
    os._exit(1)


def collectives_of_every_kind(_: None) -> float:
    """One call each: with a subgroup, of objects, differentiable (with its backward), point to point in a batch."""
    rank = here().rank
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.broadcast(torch.ones(2, dtype=torch.int64), src=0, group=pair)
    dist.all_gather_object([None] * here().layout.world, {"rank": rank})
    weight = torch.tensor([float(rank)], requires_grad=True)
    torch.distributed.nn.functional.all_reduce(weight * 2).sum().backward()
    if rank < 2:
        received = torch.empty(3)
        sends = dist.P2POp(dist.isend, torch.full((3,), float(rank)), 1 - rank)
        receives = dist.P2POp(dist.irecv, received, 1 - rank)
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()
    assert weight.grad is not None
    return weight.grad.item()


def megatron_places(_: None) -> dict[str, Any]:
    """Megatron's own ranks, and the global ranks of its groups."""
    from megatron.core import parallel_state

    groups = {
        "tp": parallel_state.get_tensor_model_parallel_group(),
        "cp": parallel_state.get_context_parallel_group(),
        "dp": parallel_state.get_data_parallel_group(),
        "pp": parallel_state.get_pipeline_model_parallel_group(),
    }
    places = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_context_parallel_rank(),
        parallel_state.get_data_parallel_rank(),
        parallel_state.get_pipeline_model_parallel_rank(),
    )
    return {"places": places, "groups": {name: dist.get_process_group_ranks(group) for name, group in groups.items()}}


def megatron_gather(number: float) -> list[float]:
    """Gathers through the function of torch that megatron's tensor-parallel mappings keep in a variable."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import mappings

    gathered = torch.empty(here().layout.tp)
    mappings.dist_all_gather_func(
        gathered, torch.tensor([number]), group=parallel_state.get_tensor_model_parallel_group()
    )
    return gathered.tolist()
