"""The registry as data: what a spec may say, what the table says, and that every field is obeyed by its consumer."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from relax.algorithms import spec as spec_module
from relax.algorithms.resolve import resolve_implementations
from relax.algorithms.rewards import REWARD_NORMALIZERS
from relax.algorithms.spec import (
    AlgorithmSpec,
    check_table,
    get_algorithm,
    list_algorithm_names,
)

FIELDS_OF_THE_DESIGN = [
    "name",
    "reward_normalizer",
    "advantage_fn",
    "policy_loss_fn",
    "kl_level",
    "advantage_normalization",
    "needs_full_log_probs",
    "needs_critic",
    "requires_normalize_advantages",
    "forbids_normalize_advantages",
    "requires_rewards_normalization",
    "supports_fully_async",
    "uses_reward_components",
    "min_group_size",
    "allows_reward_post_process_hooks",
    "forbids_reward_side_kl",
    "requires_global_token_loss",
    "requires_on_policy_updates",
    "disabled_reason",
]

# reward_normalizer, advantage_fn, policy_loss_fn, kl_level, advantage_normalization: the columns of the baseline's
# table, and below it the two that came with the registry.
ROUTES = {
    "grpo": ("group_mean_std", "broadcast", "ppo_clip", "token", "whiten"),
    "gspo": ("group_mean_std", "broadcast", "ppo_clip", "sequence", "whiten"),
    "sapo": ("group_mean_std", "broadcast", "soft_gate", "token", "whiten"),
    "cispo": ("group_mean_std", "broadcast", "clipped_is", "token", "whiten"),
    "ppo": ("none", "gae", "ppo_clip", "token", "whiten"),
    "reinforce_plus_plus": ("none", "discounted_returns", "ppo_clip", "token", "token_global"),
    "reinforce_plus_plus_baseline": ("group_mean", "masked_broadcast", "ppo_clip", "token", "token_global"),
    "rloo": ("leave_one_out", "broadcast", "reinforce", "token", "whiten"),
    "gdpo": ("component_groups", "whitened_broadcast", "ppo_clip", "token", "whiten"),
}

# What differs from a spec that says nothing, beyond the route.
FLAGS: dict[str, dict[str, Any]] = {
    "grpo": {"min_group_size": 2},
    "gspo": {"min_group_size": 2, "needs_full_log_probs": True},
    "sapo": {"min_group_size": 2},
    "cispo": {"min_group_size": 2},
    "ppo": {"needs_critic": True},
    "reinforce_plus_plus": {"requires_normalize_advantages": True},
    "reinforce_plus_plus_baseline": {"requires_normalize_advantages": True},
    "rloo": {
        "min_group_size": 2,
        "requires_rewards_normalization": True,
        "supports_fully_async": False,
        "forbids_reward_side_kl": True,
        "requires_global_token_loss": True,
        "requires_on_policy_updates": True,
    },
    "gdpo": {
        "min_group_size": 2,
        "forbids_normalize_advantages": True,
        "requires_rewards_normalization": True,
        "uses_reward_components": True,
        "allows_reward_post_process_hooks": False,
    },
}


def plain(**fields: Any) -> AlgorithmSpec:
    """A spec that asks for nothing, with ``fields`` laid over it."""
    route = {"reward_normalizer": "none", "advantage_fn": "broadcast", "policy_loss_fn": "ppo_clip"}
    return AlgorithmSpec(**{"name": "probe", **route, **fields})


class TestTable:
    def test_names(self) -> None:
        """The nine algorithms are registered, in the order of the table."""
        assert list_algorithm_names() == list(ROUTES)

    @pytest.mark.parametrize("name", ROUTES)
    def test_entry(self, name: str) -> None:
        """An entry is its route, its flags and otherwise the defaults, nothing else."""
        fields = ("reward_normalizer", "advantage_fn", "policy_loss_fn", "kl_level", "advantage_normalization")
        route = dict(zip(fields, ROUTES[name], strict=True))
        assert get_algorithm(name) == AlgorithmSpec(name=name, **route, **FLAGS[name])

    def test_fields(self) -> None:
        """The fields are those of the design, in its order, and each is documented with its consumer."""
        lines = Path(spec_module.__file__).read_text(encoding="utf-8").splitlines()
        names = [field.name for field in dataclasses.fields(AlgorithmSpec)]
        assert names == FIELDS_OF_THE_DESIGN
        for name in names:
            at = next(i for i, line in enumerate(lines) if line.startswith(f"    {name}: "))
            assert "Read by" in lines[at + 1], name

    @pytest.mark.parametrize("name", ROUTES)
    def test_consistent(self, name: str) -> None:
        """What one field implies about another holds for every entry."""
        spec = get_algorithm(name)
        assert spec.needs_critic == (spec.advantage_fn == "gae")
        assert spec.uses_reward_components == (spec.reward_normalizer == "component_groups")
        assert spec.needs_full_log_probs == (spec.kl_level == "sequence")
        assert spec.disabled_reason is None

    @pytest.mark.parametrize("name", ROUTES)
    def test_resolves(self, name: str) -> None:
        """Every entry has an implementation on every stage."""
        spec = get_algorithm(name)
        found = resolve_implementations(spec)
        assert found.reward_normalizer is REWARD_NORMALIZERS[spec.reward_normalizer]
        assert callable(found.advantage_fn)
        assert callable(found.policy_loss_fn)

    def test_identifiers_are_the_tables_keys(self) -> None:
        """The identifiers that a spec may use are exactly those that are implemented."""
        from relax.algorithms.advantages import ADVANTAGE_FNS
        from relax.algorithms.policy import POLICY_LOSS_FNS

        assert frozenset(REWARD_NORMALIZERS) == spec_module.REWARD_NORMALIZER_IDS
        assert frozenset(ADVANTAGE_FNS) == spec_module.ADVANTAGE_FN_IDS
        assert frozenset(POLICY_LOSS_FNS) == spec_module.POLICY_LOSS_FN_IDS

    def test_key_is_the_name(self) -> None:
        """A table whose key differs from the entry's name is refused, naming both."""
        with pytest.raises(ValueError, match=r"ALGORITHM_SPECS\['other'\] is named 'probe'"):
            check_table({"other": plain()})
        check_table({"probe": plain()})

    def test_the_table_itself_is_checked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The registry with one key misspelled does not import."""
        edited = tmp_path / "edited_spec.py"
        source = Path(spec_module.__file__).read_text(encoding="utf-8")
        edited.write_text(source.replace('    "sapo": AlgorithmSpec(', '    "sap0": AlgorithmSpec('), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ValueError, match=r"ALGORITHM_SPECS\['sap0'\] is named 'sapo'"):
            importlib.import_module("edited_spec")


class TestRefusedSpecs:
    @pytest.mark.parametrize(
        "field", ["reward_normalizer", "advantage_fn", "policy_loss_fn", "kl_level", "advantage_normalization"]
    )
    def test_unknown_identifier(self, field: str) -> None:
        """An identifier that is not known is refused, naming algorithm, field, value and the known ones."""
        with pytest.raises(ValueError, match=rf"'probe': {field} 'nonesuch' is not known: use one of \w+, \w+"):
            plain(**{field: "nonesuch"})

    def test_requires_and_forbids(self) -> None:
        """A spec that both requires and forbids token normalisation is refused."""
        with pytest.raises(ValueError, match="both requires and forbids normalize_advantages"):
            plain(requires_normalize_advantages=True, forbids_normalize_advantages=True)

    def test_requires_what_it_has_not(self) -> None:
        """A spec that requires a normalisation of rewards and names none is refused."""
        with pytest.raises(ValueError, match="requires rewards normalization and has none"):
            plain(requires_rewards_normalization=True)

    @pytest.mark.parametrize(
        ("normalizer", "smallest"),
        [("group_mean_std", 2), ("leave_one_out", 2), ("component_groups", 2), ("none", 1), ("group_mean", 1)],
    )
    def test_group_too_small(self, normalizer: str, smallest: int) -> None:
        """The smallest group is at least 1, and at least 2 where the normalizer divides by n - 1."""
        assert plain(reward_normalizer=normalizer, min_group_size=smallest).min_group_size == smallest
        with pytest.raises(ValueError, match=f"min_group_size {smallest - 1} is too small.*use {smallest} or more"):
            plain(reward_normalizer=normalizer, min_group_size=smallest - 1)

    def test_no_name(self) -> None:
        """A spec without a name is refused."""
        with pytest.raises(ValueError, match="needs a name"):
            plain(name="")

    def test_frozen(self) -> None:
        """A spec cannot be changed, neither in a field nor by a new attribute."""
        with pytest.raises(dataclasses.FrozenInstanceError):
            plain().needs_critic = True  # type: ignore[misc]
        assert not hasattr(plain(), "__dict__")


class TestUnknownName:
    @pytest.mark.parametrize(
        ("name", "closest"),
        [("grop", "grpo"), ("GDPO", "gdpo"), ("reinforce++", "reinforce_plus_plus"), ("rlo", "rloo")],
    )
    def test_closest(self, name: str, closest: str) -> None:
        """An unknown name is told with every registered one and the closest of them."""
        with pytest.raises(ValueError, match=f"did you mean '{closest}'") as error:
            get_algorithm(name)
        assert repr(name) in str(error.value)
        assert ", ".join(ROUTES) in str(error.value)

    @pytest.mark.parametrize("name", ["", "zzzz", None, 7, ["what"]])
    def test_nothing_close(self, name: Any) -> None:
        """What resembles no name is told with the registered ones alone."""
        with pytest.raises(ValueError, match="the registered ones are") as error:
            get_algorithm(name)
        assert "did you mean" not in str(error.value)

    def test_baseline_is_not_confused(self) -> None:
        """A name that begins with another one is its own entry."""
        assert get_algorithm("reinforce_plus_plus_baseline").reward_normalizer == "group_mean"
        assert get_algorithm("reinforce_plus_plus").reward_normalizer == "none"


# Below: for each field two specs that differ in it, and what its consumer then does differently.
