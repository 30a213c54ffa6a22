"""The options of running a training: defaults, ranges, and what contradicts what."""

from __future__ import annotations

import json

import pytest

from relax.arguments import build_parser, main, parse_args
from relax.option_ranges import OPTION_RANGES, attribute_of
from relax.refusals import NEVER_BLANK
from relax.runtime_options import RUNTIME_MAY_BE_LEFT_OUT, RUNTIME_NEVER_BLANK, RUNTIME_RANGES
from tests.relax.command_lines import line, refused
from verification.cases.arguments import DEFAULTS

RUNTIME_DEFAULTS = {
    "config": None,
    "task_path": "relax.tasks.sums:sums_task",
    "task_data": None,
    "max_new_tokens": 14,
    "eval_problems": 0,
    "hf_checkpoint": None,
    "max_length": 32,
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 256,
    "device": "cpu",
    "lr": 5e-4,
    "critic_lr": None,
    "lr_warmup_steps": 0,
    "weight_decay": 0.0,
    "clip_grad": 1.0,
    "micro_batch_size": 64,
    "sft_steps": 0,
    "sft_batch_size": 64,
    "sft_lr": 3e-3,
    "sft_lr_warmup_steps": 20,
    "data_parallel_size": 1,
    "storage_units": 2,
    "ray_logical_cpus": None,
    "call_timeout": 300.0,
    "save_interval": 0,
    "keep_checkpoints": None,
    "log_dir": None,
    "trace_rollout": None,
    "trace_folder": None,
    "save_debug_rollout_data": None,
    "load_debug_rollout_data": None,
}


def test_defaults() -> None:
    """Every runtime option has the default that is written down here, type included; none is forgotten."""
    parsed = vars(build_parser().parse_args([]))
    runtime = {name: value for name, value in parsed.items() if name not in {*DEFAULTS, "advantage_estimator"}}
    assert runtime == RUNTIME_DEFAULTS
    assert {name: type(value) for name, value in runtime.items()} == {n: type(v) for n, v in RUNTIME_DEFAULTS.items()}


def test_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The options in force are shown, those of the runtime among them."""
    assert main(["--lr", "1e-3", "--trace-rollout", "0", "--trace-folder", "kept"]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected = {**RUNTIME_DEFAULTS, "lr": 1e-3, "trace_rollout": 0, "trace_folder": "kept"}
    assert {name: shown[name] for name in expected} == expected


def test_every_number_has_a_range() -> None:
    """No number of the command line goes without a range, and no text may be blank."""
    actions = [action for action in build_parser()._actions if action.dest not in ("gdpo_reward_weights", "config")]
    numeric = {action.option_strings[0] for action in actions if action.type in (int, float)}
    assert numeric == set(OPTION_RANGES) | set(RUNTIME_RANGES)
    texts = {action.option_strings[0] for action in actions if action.type is str and action.choices is None}
    assert texts - {"--gdpo-reward-keys"} == set(NEVER_BLANK) | set(RUNTIME_NEVER_BLANK)


@pytest.mark.parametrize("option", RUNTIME_RANGES)
def test_out_of_range(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number below its range, and one that is not finite, are refused with option, value and range."""
    allowed = RUNTIME_RANGES[option]
    below = str(int(allowed.low) - 1)
    expected = f"is out of range: give a finite number {allowed}"
    assert f"{option} {below}" in refused([f"{option}={below}"], capsys)
    assert expected in refused([f"{option}={below}"], capsys)
    if isinstance(RUNTIME_DEFAULTS[attribute_of(option)], float):
        assert f"{option} nan {expected}" in refused([f"{option}=nan"], capsys)


@pytest.mark.parametrize("option", sorted(RUNTIME_MAY_BE_LEFT_OUT))
def test_left_out(option: str) -> None:
    """What others decide, or what is off, is None."""
    assert getattr(parse_args([]), attribute_of(option)) is None


@pytest.mark.parametrize("option", RUNTIME_NEVER_BLANK)
def test_blank(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A blank path is refused with its option and the remedy."""
    message = refused([option, " "], capsys)
    assert f"{option} ' ': it is blank; give what it names, or leave the option out" in message


def test_accepted() -> None:
    """What belongs together is accepted, in a supervised run too."""
    saved = ["--save", "out", "--save-interval", "1", "--keep-checkpoints", "2"]
    args = parse_args(line("gdpo", *saved, "--data-parallel-size", "2", "--sft-steps", "3", "--sft-batch-size", "4"))
    assert (args.data_parallel_size, args.sft_steps, args.sft_batch_size) == (2, 3, 4)
    assert parse_args(["--debug-rollout-only", "--save-debug-rollout-data", "x"]).save_debug_rollout_data == "x"
    assert parse_args(["--loss-type", "sft_loss", "--sft-steps", "3", "--num-rollout", "3"]).num_rollout == 3
