"""What a run cannot go on from: each refusal is one line, before anything is started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relax.core.checkpoint import CheckpointError, commit, pending_folder, write_part
from relax.core.resume import checkpoint_of, lasting_options
from relax.option_ranges import attribute_of
from tests.runtime.in_process import InProcess, tiny
from tests.runtime.qwen3_folder import write_config
from tests.runtime.test_resume import run_in

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture(scope="module")
def saved(alone: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoints of a finished run."""
    folder = tmp_path_factory.mktemp("saved")
    InProcess(run_in(folder, "gdpo", "colocate")).run()
    return folder


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        (
            "seed",
            7,
            "--seed 7 and --load .*step-00000006: it was saved with 0, and goes on with no other; give --seed 0",
        ),
        ("global_batch_size", 16, "give --global-batch-size 8"),
        ("max_staleness", 1, "give --max-staleness 0"),
        ("num_rollout", 5, "--num-rollout 5 and --load .*: it was saved after 6 rollouts"),
    ],
)
def test_other_options(saved: Path, option: str, value: int, said: str) -> None:
    """Options that a checkpoint is counted in cannot change; the line names the option and what it was."""
    args = run_in(saved, "gdpo", "colocate")
    args.load = str(saved)
    assert checkpoint_of(args) is not None
    setattr(args, option, value)
    with pytest.raises(CheckpointError, match=said):
        checkpoint_of(args)


@pytest.mark.parametrize("step", [0, 6])
@pytest.mark.parametrize("option", ["--hidden-size", "--num-attention-heads", "--max-length"])
def test_another_model(saved: Path, step: int, option: str) -> None:
    """A model of another shape is refused before anything is started, at any step; so are other heads, whose shapes
    are the same."""
    args = tiny("gdpo", "--num-rollout", "6", "--load", str(saved / f"step-{step:08d}"))
    assert checkpoint_of(args) is not None
    was = getattr(args, attribute_of(option))
    setattr(args, attribute_of(option), 2 * was)
    with pytest.raises(
        CheckpointError, match=f"^{option} {2 * was} and --load .*: it was saved with {was}, .*; give {option}"
    ):
        checkpoint_of(args)


def test_model_of_a_folder(saved: Path, tmp_path: Path) -> None:
    """A model on disk is told by its sizes, wherever its folder is, and no small model takes its place."""
    args = tiny("gdpo", "--num-rollout", "6", "--load", str(saved))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_config(tmp_path / name)
    args.hf_checkpoint = str(tmp_path / "a")
    with pytest.raises(
        CheckpointError, match=r"^--hf-checkpoint \(given\) and --load .*: it was saved with \(not given\)"
    ):
        checkpoint_of(args)
    pending = pending_folder(tmp_path / "saved", 0)
    write_part(pending, "run", tensors={}, facts={"options": lasting_options(args)})
    commit(pending, 0)
    args.load = str(tmp_path / "saved")
    args.hf_checkpoint = str(tmp_path / "b")
    assert checkpoint_of(args) is not None
    write_config(tmp_path / "b", hidden_size=64)
    with pytest.raises(
        CheckpointError, match=r"^--hf-checkpoint's hidden_size 64 and --load .*: it was saved with 48, and"
    ):
        checkpoint_of(args)


def test_another_role(saved: Path) -> None:
    """A critic cannot go on from a run that had none; before the first rollout it starts as any run's does."""
    options = ("--num-rollout", "6", "--load")
    assert checkpoint_of(tiny("ppo", *options, str(saved / "step-00000000"))) is not None
    said = (
        r"step-00000006 has no part 'critic', only actor, published, rollout, run: it was saved by a run with other r"
    )
    with pytest.raises(CheckpointError, match=said):
        checkpoint_of(tiny("ppo", *options, str(saved)))


def test_another_release(tmp_path: Path) -> None:
    """A checkpoint that tells less of its run than this program asks is refused, with what it lacks."""
    for step, facts in enumerate(({}, {"options": {}}, {"options": {"--hf-checkpoint": "(not given)"}})):
        pending = pending_folder(tmp_path, step)
        write_part(pending, "run", tensors={}, facts=facts)
        for part in ("actor", "rollout"):
            write_part(pending, part, tensors={}, facts={})
        commit(pending, step)
        with pytest.raises(
            CheckpointError, match=r"^--load .*: another release saved it, which kept no --\S+; go on with"
        ):
            checkpoint_of(tiny("gdpo", "--num-rollout", "6", "--load", str(tmp_path)))


def test_a_reference_that_was_not_kept(saved: Path) -> None:
    """An option that reads the reference cannot be added later: it is the policy before the first step."""
    for option, value, named in (("use_kl_loss", True, "--use-kl-loss"), ("kl_coef", 0.1, "--kl-coef 0.1")):
        args = run_in(saved, "gdpo", "colocate")
        args.load = str(saved)
        setattr(args, option, value)
        said = rf"^{named} and --load .*step-00000006: it was saved by a run without them, which kept no reference; "
        with pytest.raises(CheckpointError, match=said):
            checkpoint_of(args)


def test_later_checkpoints(saved: Path, tmp_path: Path) -> None:
    """Going on from an earlier checkpoint needs another folder: --load of this one would open what came later."""
    args = run_in(saved, "gdpo", "colocate")
    args.load = str(saved / "step-00000002")
    with pytest.raises(CheckpointError, match="--save holds checkpoints of later steps, the latest of step 6"):
        checkpoint_of(args)
    args.save = str(tmp_path)
    assert checkpoint_of(args).step == 2


def test_from_the_beginning(tmp_path: Path, saved: Path) -> None:
    """Without --load, and where a run was ended before its first checkpoint; not where --load is another folder."""
    assert checkpoint_of(tiny("gdpo")) is None
    folder = str(tmp_path)
    for same in (folder, f"{folder}/", f"{folder}/../{tmp_path.name}"):
        assert checkpoint_of(tiny("gdpo", "--save", folder, "--load", same)) is None
    with pytest.raises(CheckpointError, match="holds no checkpoint, none at all"):
        checkpoint_of(tiny("gdpo", "--save", str(saved), "--load", folder))


def test_damaged(tmp_path: Path, saved: Path) -> None:
    """A checkpoint with a changed byte in any part is refused before anything is started."""
    shutil.copytree(saved, tmp_path / "saved")
    actor = tmp_path / "saved" / "step-00000006" / "actor.safetensors"
    actor.write_bytes(actor.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match=r"actor.safetensors has changed since it was written"):
        checkpoint_of(tiny("gdpo", "--load", str(tmp_path / "saved"), "--num-rollout", "6"))
