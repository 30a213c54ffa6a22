"""Writing a trace: every value with its type and bits, one rollout only, and the calls of several ranks as one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from relax.core.trace import TraceError, keep, seal_trace, start_trace, tracing
from tests.verification.traces import reseal, write_trace
from verification.cases.arguments import namespace
from verification.traced.cases import traced_cases, whole_calls
from verification.traced.read import TraceRefused, read_trace


class TestWriting:
    def test_every_value(self, tmp_path: Path) -> None:
        """Numbers, texts and tensors of every kind come back with their types and bits."""
        args = namespace("grpo")
        args.trace_rollout, args.trace_folder = 0, str(tmp_path)
        nan = torch.tensor([0x7FC01234], dtype=torch.int32).view(torch.float32)
        tensors = [
            nan,
            torch.tensor(-0.0),
            torch.zeros(0),
            torch.tensor([5e-324]),
            torch.ones(2, 2).t(),
            torch.tensor(True),
        ]
        values = {
            "floats": [-0.0, 5e-324, 1e308],
            "odd": [math.inf, -math.inf],
            "int": 2**70,
            "text": "ä\n",
            "none": None,
        }
        start_trace(args)
        with tracing(args, [0], "a"):
            keep("policy.loss", args, {"tensors": tensors, **values, "numpy": np.float32(0.1), "thing": object()}, {})
        seal_trace(args)
        (call,) = read_trace(tmp_path).calls
        assert {name: call.inputs[name] for name in values} == values
        assert math.copysign(1, call.inputs["floats"][0]) == -1
        assert call.inputs["numpy"] == float(np.float32(0.1))
        assert call.inputs["thing"] == "a builtins.object, which the trace does not hold"
        for expected, found in zip(tensors, call.inputs["tensors"], strict=True):
            assert (expected.dtype, expected.shape) == (found.dtype, found.shape)
            assert expected.contiguous().numpy().tobytes() == found.numpy().tobytes()

    def test_only_the_rollout(self, tmp_path: Path) -> None:
        """Without a trace, and for another rollout, nothing is written; sealing nothing is refused."""
        args = namespace("grpo")
        args.trace_rollout, args.trace_folder = 4, str(tmp_path)
        start_trace(args)
        keep("policy.loss", args, {}, {})
        with tracing(args, [3, 5], "a"):
            keep("policy.loss", args, {}, {})
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(TraceError, match="holds no call of rollout 4: nothing was traced"):
            seal_trace(args)

    def test_started_anew(self, tmp_path: Path) -> None:
        """A second attempt leaves nothing of the first, and no file that is not the trace's is touched."""
        write_trace(tmp_path, "grpo")
        (tmp_path / "notes.json").write_text("{}")
        write_trace(tmp_path, "grpo")
        assert len(read_trace(tmp_path).calls) == 2
        assert (tmp_path / "notes.json").exists()

    def test_cannot_write(self, tmp_path: Path) -> None:
        """A folder that cannot be made is told with its option."""
        (tmp_path / "file").write_text("")
        args = namespace("grpo")
        args.trace_rollout, args.trace_folder = 0, str(tmp_path / "file")
        with pytest.raises(TraceError, match=r"file cannot be written: .*; give another folder to --trace-folder"):
            start_trace(args)

    def test_whole_call_of_ranks(self, tmp_path: Path) -> None:
        """Ranks' calls are put together batch by batch, and a batch that they tell of differently is refused."""
        args = namespace("gdpo", gdpo_reward_keys=["a", "b"])
        args.trace_rollout, args.trace_folder = 0, str(tmp_path)
        start_trace(args)
        for rank, sizes in enumerate(([1, 2], [2, 1])):
            numbers = [10 * rank + i for i in range(3)]
            given = {"rewards": [float(n) for n in numbers], "mini_batch_sizes": sizes, "values": None}
            results = {"advantages": [torch.tensor([float(n)]) for n in numbers]}
            with tracing(args, [0], f"actor-{rank}"):
                results["returns"] = results["advantages"]
                rows = [f"row {n}" for n in numbers]
                keep("advantage.estimate", args, given, results, rows=rows, rank=rank, ranks=2)
        seal_trace(args)
        (call,) = whole_calls(read_trace(tmp_path))
        assert call.rows == ("row 0", "row 10", "row 11", "row 1", "row 2", "row 12")
        (traced,) = traced_cases(0, [call])
        assert traced.bits
        assert traced.case.inputs == {
            "rewards": [0.0, 10.0, 11.0, 1.0, 2.0, 12.0],
            "mini_batch_sizes": [3, 3],
            "values": None,
        }
        assert [traced.recorded.arrays[f"advantages[{i}]"].item() for i in range(6)] == [
            0.0,
            10.0,
            11.0,
            1.0,
            2.0,
            12.0,
        ]
        path = tmp_path / "actor-1.advantage.estimate.0000.json"
        path.write_text(path.read_text().replace("mini_batch_sizes", "mini_batch_size"))
        reseal(tmp_path)
        with pytest.raises(TraceRefused, match="the ranks tell of different optimizer batches"):
            whole_calls(read_trace(tmp_path))

    def test_tokens_of_ranks(self, tmp_path: Path) -> None:
        """Tokens that ranks normalised together are one call of all, of which one process need not have the bits."""
        args = namespace("reinforce_plus_plus", normalize_advantages=True)
        args.trace_rollout, args.trace_folder = 0, str(tmp_path)
        start_trace(args)
        for rank in range(2):
            tokens = [torch.tensor([float(rank + 1)])] * (rank + 1)
            given = {"advantages": tokens, "loss_masks": None}
            with tracing(args, [0], f"actor-{rank}"):
                rows = [f"row {rank} {i}" for i in range(rank + 1)]
                keep("advantage.normalize", args, given, {"advantages": tokens}, rows=rows, rank=rank, ranks=2)
        seal_trace(args)
        (call,) = whole_calls(read_trace(tmp_path))
        assert call.rows == ("row 0 0", "row 1 0", "row 1 1")
        (traced,) = traced_cases(0, [call])
        assert not traced.bits
        assert traced.case.inputs == {"advantages": [1.0, 2.0, 2.0], "loss_masks": None}
