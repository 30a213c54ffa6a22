"""The folders of a run: whether they can be written to, and whether there is room for its checkpoints."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from relax.backends.megatron.build import build_critic, build_policy
from relax.core.checkpoint import commit, pending_folder, write_part
from relax.core.folders import SPARE, checkpoint_bytes, checkpoints_to_come, most_needed, parameters
from relax.core.preflight import preflight
from relax.tasks.sums import Sums, sums_task
from tests.runtime.test_preflight import options


def checkpoint(root: Path, step: int) -> None:
    """A small checkpoint."""
    pending = pending_folder(root, step)
    write_part(pending, "run", tensors={}, facts={})
    commit(pending, step)


class TestFolders:
    @pytest.mark.parametrize("option", ["--save", "--log-dir", "--trace-folder", "--save-debug-rollout-data"])
    def test_not_writable(self, option: str, tmp_path: Path) -> None:
        """A folder that cannot be made or written to is told."""
        (tmp_path / "file").write_text("")
        more = {"--trace-folder": ["--trace-rollout", "0"], "--save-debug-rollout-data": ["--debug-rollout-only"]}
        with pytest.raises(ValueError, match=f"{option} .*file/x: it cannot be written to"):
            preflight(options(option, str(tmp_path / "file" / "x"), *more.get(option, [])))

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_no_permission(self, tmp_path: Path) -> None:
        """A folder of somebody else's is told."""
        tmp_path.chmod(0o500)
        with pytest.raises(ValueError, match=r"--save .*Permission denied"):
            preflight(options("--save", str(tmp_path / "x")))

    def test_no_room(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Checkpoints that do not fit are told, with how large they are each and together."""
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 30 * 2**20))
        argv = ["--save", str(tmp_path), "--num-rollout", "20", "--save-interval", "1"]
        with pytest.raises(
            ValueError, match=r"--save .*: checkpoints of about 3 MiB each take 55 MiB .* 30 MiB are free"
        ):
            preflight(options(*argv))
        preflight(options(*argv, "--keep-checkpoints", "8"))

    def test_room_to_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run that goes on needs room for the checkpoints that are still to come, and what a killed one left counts
        as free: it goes first."""
        usage = namedtuple("usage", "total used free")
        argv = ["--save", str(tmp_path), "--load", str(tmp_path), "--num-rollout", "20", "--save-interval", "1"]
        each = checkpoint_bytes(options(*argv), parameters(options(*argv), Sums()))
        for step in range(18):
            checkpoint(tmp_path, step)
        free = [2 * each, 3 * each - 1, 3 * each - each // 2]
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, free[0]))
        with pytest.raises(ValueError, match=r"--save .* take .* more at once"):
            preflight(options(*argv))
        free[0] = 3 * each
        preflight(options(*argv))
        free[0] = 3 * each - 500
        with pytest.raises(ValueError, match=r"--save .* take .* more at once"):
            preflight(options(*argv))
        (pending_folder(tmp_path, 18) / "actor.safetensors").write_bytes(bytes(500))
        preflight(options(*argv))


@pytest.mark.usefixtures("alone")
class TestSize:
    @pytest.mark.parametrize("layers", [1, 3])
    def test_parameters(self, layers: int) -> None:
        """The estimate is that of the model that is built, within a hundredth."""
        args = options("--num-layers", str(layers), "--hidden-size", "48", "--ffn-hidden-size", "100")
        built = sum(one.numel() for one in build_policy(args, Sums()).parameters())
        assert parameters(args, sums_task(args)) == pytest.approx(built, rel=0.01)  # reason: biases are left out

    def test_checkpoint(self) -> None:
        """Weights and moments of policy and critic, and published weights."""
        ppo = options("--advantage-estimator", "ppo")
        trained = sum(one.numel() for build in (build_policy, build_critic) for one in build(ppo, Sums()).parameters())
        count = parameters(ppo, Sums())
        # reason: the critic has a head of its own, and every tensor is float32
        assert checkpoint_bytes(ppo, count) - 2**20 == pytest.approx((3 * trained + count) * 4, rel=0.01)

    def test_which(self, tmp_path: Path) -> None:
        """One at the end; with an interval also one at each, the first before any rollout, but for those that a run
        which goes on has had."""
        save = ["--save", "x", "--num-rollout", "10"]
        assert checkpoints_to_come(options(*save)) == [10]
        assert checkpoints_to_come(options(*save, "--save-interval", "4")) == [0, 4, 8, 10]
        supervised = ["--loss-type", "sft_loss", "--sft-steps", "3"]
        assert checkpoints_to_come(options(*save, *supervised, rewards=False)) == [0]
        load = [*save, "--save-interval", "4", "--load", str(tmp_path)]
        assert checkpoints_to_come(options(*load)) == [0, 4, 8, 10]
        for step in (0, 4, 8):
            checkpoint(tmp_path, step)
        assert checkpoints_to_come(options(*load)) == [10]
        assert checkpoints_to_come(options(*load[:-1], str(tmp_path / "step-00000004"))) == [8, 10]

    def test_at_once(self, tmp_path: Path) -> None:
        """With --keep-checkpoints no more than those and the one that is being written; those of before count."""
        save = ["--save", str(tmp_path), "--num-rollout", "10", "--save-interval", "2"]
        assert most_needed(options(*save), SPARE) == 6 * SPARE
        assert most_needed(options(*save, "--keep-checkpoints", "3"), SPARE) == 4 * SPARE
        assert most_needed(options(*save, "--keep-checkpoints", "9"), SPARE) == 6 * SPARE
        for step in (0, 2):
            checkpoint(tmp_path, step)
            (tmp_path / f"step-{step:08d}" / "actor.safetensors").write_bytes(bytes(SPARE))
        small = sum(path.stat().st_size for path in tmp_path.glob("*/*")) - 2 * SPARE
        load = [*save, "--load", str(tmp_path)]
        assert most_needed(options(*load), SPARE) == 4 * SPARE
        # The two of before go once three newer ones are there: while the fourth is written, one of them, at most.
        assert most_needed(options(*load, "--keep-checkpoints", "3"), SPARE) == 2 * SPARE
        assert most_needed(options(*load, "--keep-checkpoints", "1"), SPARE) == SPARE
        assert small < SPARE
