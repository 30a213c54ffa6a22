"""``--config``: options from a YAML file, under those of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from relax.arguments import parse_args
from tests.relax.command_lines import refused

pytest.importorskip("yaml")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Writes configurations."""
    return Config(tmp_path / "run.yaml")


class Config:
    """One file of options."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parsed(self, text: str, *argv: str) -> argparse.Namespace:
        """The options in force with ``text`` in the file."""
        self.path.write_text(text)
        return parse_args(["--config", str(self.path), *argv])

    def message(self, capsys: pytest.CaptureFixture[str], text: str | bytes, *argv: str) -> str:
        """The one line that refuses the file, without what it starts with."""
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        message = refused(["--config", str(self.path), *argv], capsys)
        assert str(self.path) in message
        return message


class TestValues:
    def test_every_kind(self, config: Config) -> None:
        """Numbers, texts, choices, lists and switches become what the command line would make of them."""
        args = config.parsed(
            "advantage-estimator: gdpo\ngdpo_reward_keys: [correctness, format]\n--gdpo-reward-weights: [1, 0.5]\n"
            "lr: 5e-4\nkl-loss-type: k3\nuse-kl-loss: true\nkl-loss-coef: 0.1\nnum-rollout: 10\n"
            "fully-async: true\ncall-timeout: 20\n"
        )
        assert args.advantage_estimator == "gdpo"
        assert args.gdpo_reward_keys == ["correctness", "format"]
        assert args.gdpo_reward_weights == [1.0, 0.5]
        assert (args.lr, args.kl_loss_type, args.num_rollout, args.call_timeout) == (5e-4, "k3", 10, 20.0)
        assert (args.fully_async, args.colocate) == (True, False)
        assert isinstance(args.call_timeout, float)

    def test_same_as_the_command_line(self, config: Config) -> None:
        """A file and the command line that says the same give the same options."""
        args = vars(config.parsed("eps-clip: 1e-1\nseed: 007\nuse-tis: yes\ndisable-rewards-normalization: on\n"))
        line = ["--eps-clip", "1e-1", "--seed", "007", "--use-tis", "--disable-rewards-normalization"]
        assert {**args, "config": None} == vars(parse_args(line))

    def test_empty(self, config: Config) -> None:
        """An empty file, and one of comments, change nothing."""
        assert vars(parse_args([])) == {**vars(config.parsed("")), "config": None}
        assert vars(parse_args([])) == {**vars(config.parsed("# nothing\n")), "config": None}

    def test_null(self, config: Config, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing stands for "not given" where that is the default, and is refused elsewhere."""
        assert config.parsed("eps-clip-c: null\n").eps_clip_c is None
        assert "line 1: --seed has no value" in config.message(capsys, "seed:\n")


class TestCommandLineWins:
    def test_values(self, config: Config) -> None:
        """A value of the command line stands, even where it is the default."""
        text = "gamma: 0.5\nlambd: 0.5\ngdpo-reward-keys: [a, b]\nadvantage-estimator: gdpo\n"
        args = config.parsed(text, "--gamma", "1.0", "--gdpo-reward-keys", "c", "d", "e")
        assert (args.gamma, args.lambd, args.gdpo_reward_keys) == (1.0, 0.5, ["c", "d", "e"])

    @pytest.mark.parametrize("order", [1, -1])
    def test_switches(self, config: Config, order: int) -> None:
        """A switch that the file turns on is turned off by its --no- form, wherever that stands."""
        config.path.write_text("use-tis: true\ndisable-rewards-normalization: true\nhybrid: true\n")
        options = [["--config", str(config.path)], ["--no-use-tis", "--no-disable-rewards-normalization"]][::order]
        args = parse_args([*options[0], *options[1]])
        assert (args.use_tis, args.rewards_normalization, args.hybrid) == (False, True, True)

    def test_modes(self, config: Config) -> None:
        """The mode of the command line replaces one of the file that excludes it."""
        assert config.parsed("fully-async: true\n", "--colocate").fully_async is False
        assert config.parsed("colocate: true\n", "--fully-async").fully_async is True
        assert config.parsed("fully-async: true\n", "--no-fully-async").colocate is True
        assert config.parsed("fully-async: false\n", "--fully-async").fully_async is True


REFUSED = {
    "unknown": ("seed: 1\ngama: 0.5\n", "line 2: 'gama' is no option; did you mean gamma?"),
    "far from all": ("zzzzzz: 1\n", "line 1: 'zzzzzz' is no option; --help lists the options"),
    "attribute": ("rewards_normalization: false\n", "line 1: 'rewards_normalization' is no option; did you mean"),
    "negative form": ("no-use-tis: true\n", "line 1: 'no-use-tis' is no option; did you mean use-tis?"),
    "nested": ("config: a.yaml\n", "line 1: 'config' cannot stand in a configuration"),
    "help": ("help: true\n", "line 1: 'help' cannot stand in a configuration"),
    "twice": ("eps-clip: 0.1\nseed: 1\neps_clip: 0.1\n", "line 3: 'eps_clip' stands on line 1 already"),
    "text for a number": ("seed: much\n", "line 1: --seed takes a whole number, not 'much'"),
    "quoted number": ('lr: "0.1"\n', "line 1: --lr takes a number, not the text '0.1'; drop the quotes"),
    "fraction": ("num-rollout: 2.5\n", "line 1: --num-rollout takes a whole number, not '2.5'"),
    "switch for a number": ("seed: true\n", "line 1: --seed takes a whole number, not 'true'"),
    "number for a text": ("reward-key: 5\n", "line 1: --reward-key takes text, not '5'; put it in quotes"),
    "number for a switch": ("use-tis: 1\n", "line 1: --use-tis is a switch: give true or false, not '1'"),
    "text for a switch": ('use-tis: "true"\n', "line 1: --use-tis is a switch"),
    "list for a number": ("seed:\n  - 1\n  - 2\n", "line 1: --seed takes a whole number, not a sequence"),
    "mapping for a text": ("save: {a: b}\n", "line 1: --save takes text, not a mapping"),
    "scalar for a list": ("gdpo-reward-keys: a\n", "line 1: --gdpo-reward-keys takes a list of one or more"),
    "empty list": ("gdpo-reward-keys: []\n", "line 1: --gdpo-reward-keys takes a list of one or more"),
    "list in a list": ("gdpo-reward-keys: [[a], b]\n", "line 1: --gdpo-reward-keys takes text, not a sequence"),
    "choice": ("kl-loss-type: k4\n", "line 1: --kl-loss-type 'k4': choose from k1, k2, k3, low_var_kl"),
    "algorithm": ("\nadvantage-estimator: grppo\n", "line 2: --advantage-estimator: unknown"),
    "range": ("# x\ngamma: 1.5\n", "line 2: --gamma 1.5 is out of range: give a finite number from 0 to 1"),
    "runtime range": ("lr: 0\n", "line 1: --lr 0.0 is out of range"),
    "both modes": ("colocate: true\nfully-async: true\n", "line 2: --colocate and --fully-async exclude each other"),
    "a list": ("- seed\n", "line 1: expected lines of the form option: value"),
    "a word": ("seed\n", "line 1: expected lines of the form option: value"),
    "merge": ("a: &x {seed: 1}\n<<: *x\n", "line 1: 'a' is no option"),
    "key of many": ("[a, b]: 1\n", "line 1: "),
    "tab": ("seed:\t\t- 1\n", "line 1: "),
    "two documents": ("seed: 1\n---\nseed: 2\n", "no YAML"),
    "open quote": ('save: "x\n', "no YAML"),
    "deep": ("lr: " + "[" * 3000, "no YAML: it is nested too deeply"),
    "object": ("save: !!python/object/apply:os.system [ls]\n", "line 1: --save takes text, not a sequence"),
    "no text": (b"\xff\xfe\x00\xd8", "no YAML"),
    "control": (b"save: a\x00b\n", "no YAML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be used is one line that names file, line and key, and the remedy."""
    text, words = REFUSED[name]
    assert words in config.message(capsys, text)


def test_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing, a folder, and a blank name are told apart."""
    assert "nowhere.yaml cannot be read: No such file" in refused(["--config", str(tmp_path / "nowhere.yaml")], capsys)
    assert "cannot be read: Is a directory" in refused(["--config", str(tmp_path)], capsys)
    assert "--config ' ': it is blank" in refused(["--config", " "], capsys)


def test_contradiction_between_file_and_line(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """What contradicts an option of the file is refused as two options of the command line are."""
    config.path.write_text("advantage-estimator: gdpo\ngdpo-reward-keys: [a, b]\n")
    message = refused(["--config", str(config.path), "--normalize-advantages"], capsys)
    assert "--advantage-estimator gdpo and --normalize-advantages (on)" in message
    config.path.write_text("colocate: false\n")
    message = refused(["--config", str(config.path)], capsys)
    assert "--colocate (off) and --fully-async (off): a run is one or the other" in message
    assert config.parsed("colocate: false\n", "--fully-async").fully_async is True
