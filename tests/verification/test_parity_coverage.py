"""Every line of every table is reached, and every registered algorithm is asked."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any
from unittest import mock

import pytest
import torch

from relax.algorithms import policy, spec
from verification.cases.case import Case
from verification.judges.comparison import Comparison
from verification.parity import coverage
from verification.parity.compare import recorded_subjects
from verification.parity.kernels import FROZEN_KERNELS
from verification.subjects.frozen import frozen_subject
from verification.subjects.live import live_subject


@pytest.fixture
def corpus() -> list[Case]:
    """The corpus of the algorithms that parity does not know."""
    from verification.cases import corpus as whole_corpus

    return [case for case in whole_corpus() if case.algorithm in ("gdpo", "rloo")]


def unrecorded(args: argparse.Namespace, **tensors: torch.Tensor) -> Any:
    return policy.POLICY_LOSS_FNS["ppo_clip"](args, **tensors)


class TestCoverage:
    def covered(self, corpus: list[Case]) -> list[Comparison]:
        old = {kernel.entry for kernel in FROZEN_KERNELS}
        with recorded_subjects(live_subject(), frozen_subject()) as (live, _):
            return coverage.compare_coverage(old, live, corpus)

    def test_every_line_is_reached(self, corpus: list[Case]) -> None:
        """Parity and the corpus together reach every line of every table."""
        found = self.covered(corpus)
        assert [one.detail for one in found if not one.agrees] == []
        assert {"REWARD_NORMALIZERS/component_groups", "POLICY_LOSS_FNS/reinforce"} <= {one.what for one in found}

    def test_a_line_that_no_case_reaches_is_found(self) -> None:
        """Without cases of the new algorithms exactly their lines are unreached."""
        unreached = {one.what for one in self.covered([]) if not one.agrees}
        assert unreached == {
            "REWARD_NORMALIZERS/leave_one_out",
            "REWARD_NORMALIZERS/component_groups",
            "ADVANTAGE_FNS/whitened_broadcast",
            "POLICY_LOSS_FNS/reinforce",
        }

    def test_a_line_without_recorder_is_found(self, corpus: list[Case]) -> None:
        """A line that was added to a table and not to the recorders is named with the remedy."""
        with mock.patch.dict(policy.POLICY_LOSS_FNS, added=unrecorded):
            (found,) = [one for one in self.covered(corpus) if not one.agrees]
        assert found.what == "POLICY_LOSS_FNS/added"
        assert "LIVE_KERNELS" in found.detail


class TestRegistered:
    def test_every_algorithm_is_asked(self) -> None:
        """Each registered algorithm has a valid case of every stage that it may run."""
        found = coverage.compare_registered()
        assert [one.detail for one in found if not one.agrees] == []
        assert {one.algorithm for one in found} == set(spec.list_algorithm_names())

    def test_an_algorithm_that_no_case_asks_is_found(self) -> None:
        """One more registry entry, though made of lines that exist, fails at every stage, with the remedy."""
        added = dataclasses.replace(spec.ALGORITHM_SPECS["grpo"], name="added")
        with mock.patch.dict(spec.ALGORITHM_SPECS, added=added):
            found = [one for one in coverage.compare_registered() if not one.agrees]
        assert [one.what for one in found] == list(coverage.ROUTED_STAGES)
        assert all("no valid case of" in one.detail and "asks added" in one.detail for one in found)

    def test_a_stage_that_no_case_asks_is_found(self, corpus: list[Case]) -> None:
        """Without its objective's cases, or with refused ones alone, an algorithm is told with the stage."""
        kept = [
            dataclasses.replace(case, error=("x",)) if case.stage == "policy.loss" else case
            for case in corpus
            if case.algorithm == "gdpo"
        ]
        found = [one for one in coverage.compare_registered(kept) if not one.agrees and one.algorithm == "gdpo"]
        assert [one.what for one in found] == ["policy.loss"]
