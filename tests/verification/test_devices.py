"""The check of a device, on the device in software and on one that is the CPU under another name."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import nullcontext

import pytest
import torch

from verification.cases import corpus, find
from verification.cases.case import Case
from verification.cli import main
from verification.devices import device as device_module
from verification.devices import gdpo_steps
from verification.devices.check import run_device_check
from verification.devices.device import Device, NoSuchDevice, device_named, recordable, why_no_gpu
from verification.devices.examine import examine_on
from verification.devices.gdpo_steps import judge_steps, steps
from verification.devices.plan import TENSOR_STAGES, on_a_device, with_tensors, worlds
from verification.devices.subject import OnDevice
from verification.examine import Examined
from verification.judges.bits import judge_bits
from verification.ranks.layout import Layout
from verification.subjects.live import live_subject

PRETEND = device_named("pretend")
# Looks like a GPU to the check, which then expects the CPU's bits only of what is correctly rounded.
OTHER = Device("cpu", torch.Tensor.clone, {"one": nullcontext, "two": nullcontext}, rounds=3, as_cpu=False)
KL = find("kl.estimate/grpo/k3-coef0.1")
STEP3 = find("advantage.estimate/gdpo/vector-0005-gdpo")
STEPS12 = find("reward.normalize/gdpo/vector-0000-common")


def sample() -> list[Case]:
    """A tenth of the cases that have tensors: every stage and algorithm among them."""
    by_kind: dict[tuple[str, str], list[Case]] = {}
    for case in with_tensors(corpus()):
        by_kind.setdefault((case.stage, case.algorithm), []).append(case)
    return list(itertools.chain.from_iterable(cases[::10] for cases in by_kind.values()))


def unlike(found: Examined) -> list[tuple[str, str]]:
    """Judge and place of each difference; a golden that is not recorded yet is none of a device."""
    return [(one.judge, one.against) for one in found.comparisons if not one.agrees and "no golden" not in one.what]


class TestDevices:
    """Names of devices."""

    def test_without_a_gpu_the_reason_is_told(self, monkeypatch):
        """A torch for the CPU and a torch that sees no GPU are two reasons, and both name what to do."""
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        for version, words in ((None, "built for the CPU alone"), ("13.0", "sees no GPU: compare nvidia-smi")):
            monkeypatch.setattr(torch.version, "cuda", version)
            assert words in why_no_gpu()
            with pytest.raises(NoSuchDevice, match=f"no device cuda:1 here: .*{words}.*pretend"):
                device_named("cuda:1")

    def test_a_gpu_beyond_the_last_is_refused(self, monkeypatch):
        """The message counts the GPUs that are there."""
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(NoSuchDevice, match="no device cuda:2 here: torch sees 2 of them"):
            device_named("cuda:2")

    @pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu", ""])
    def test_other_names_are_refused(self, name):
        """What there is stands in the message."""
        with pytest.raises(NoSuchDevice, match="use cuda, cuda:N or pretend"):
            device_named(name)

    def test_goldens_are_recorded_on_devices_with_bits_of_their_own(self):
        """The device in software has the CPU's."""
        with pytest.raises(NoSuchDevice, match="goldens recorded there are those of the CPU"):
            recordable("pretend")


class TestPlan:
    """What is looked at."""

    def test_stages_with_tensors(self):
        """The token stages; rewards, options and roles are Python's own numbers and texts."""
        assert set(TENSOR_STAGES) == {
            *("kl.estimate", "advantage.estimate", "advantage.normalize", "policy.loss", "loss.reduce"),
            "logprob.entropy",
        }
        assert {case.stage for case in with_tensors(corpus())} == set(TENSOR_STAGES)

    def test_rewards_are_there_for_the_steps_of_gdpo_alone(self):
        """Valid prompt groups of components, six hundred of them or more, and no other reward case."""
        rewards = [case for case in on_a_device(corpus()) if case.stage == "reward.normalize"]
        assert {(case.algorithm, case.error) for case in rewards} == {("gdpo", None)}
        assert len(rewards) > 500

    def test_worlds_fit_the_gpus(self):
        """One rank a GPU: none without, and every number of ranks up to all GPUs."""
        assert worlds(0) == []
        assert [layout.world for layout in worlds(3)] == [1, 2, 3]
        assert worlds(2)[1] == Layout(dp=2)


class TestPretend:
    """The live code on the device in software."""

    def test_every_stage_and_algorithm_keeps_its_bits_and_its_place(self):
        """Values, gradients, aliases, changed inputs and errors of a tenth of the corpus are the CPU's, none astray."""
        live = live_subject()
        there = OnDevice(live, PRETEND)
        cases = sample()
        assert len({(case.stage, case.algorithm) for case in cases}) > 45
        for case in cases:
            outcome = there.run(case)
            assert outcome.elsewhere == ()
            assert [one.detail for one in judge_bits(case, outcome, live.run(case), "cpu") if not one.agrees] == []

    def test_all_judges_look_at_a_case(self):
        """Bits against the CPU, the frozen copies and the golden, repeats, place, exact values and the contract."""
        found = examine_on(PRETEND, KL)
        assert unlike(found) == []
        assert found.problems == []
        assert {(one.judge, one.against) for one in found.comparisons if one.against != "golden"} == {
            ("bits", "the CPU"),
            ("bits", "frozen"),
            ("contract", "contract"),
            ("determinism", "its first call"),
            ("placement", "pretend"),
            ("rounding", "oracle"),
        }
        assert found.goldens

    def test_frozen_copies_that_leave_the_device_are_not_there(self):
        """The frozen estimator of generalised advantages makes its rows on the CPU: nothing is compared with them."""
        found = examine_on(PRETEND, find("advantage.estimate/ppo/length-257-gamma0.9-lambd0.0"))
        assert found.absent == {"frozen": 1}
        assert unlike(found) == []
        assert "frozen" not in {one.against for one in found.comparisons}


class TestOther:
    """A device whose kernels may round otherwise."""

    def test_the_cpus_bits_are_due_where_results_are_correctly_rounded(self):
        """GDPO's advantages and errors are compared with the CPU, other formulas with their bounds alone."""
        for case, due in ((STEP3, True), (find("advantage.estimate/gdpo/plan-none"), True), (KL, False)):
            found = examine_on(OTHER, case)
            assert unlike(found) == []
            assert ("the CPU" in {one.against for one in found.comparisons}) == due

    def test_repeats_are_made_on_every_lane(self):
        """One comparison a lane, each of three calls."""
        lanes = [one.what for one in examine_on(OTHER, KL).comparisons if one.judge == "determinism"]
        assert lanes == ["one", "two"]


class Mixed:
    """A KL that adds a tensor of the host."""

    def kl_per_response(self, args, *, log_probs, ref_log_probs, **_):
        return [p - q + torch.zeros(len(p)) for p, q in zip(log_probs, ref_log_probs, strict=True)]


class Strayed:
    """A KL that is left on the host."""

    def kl_per_response(self, args, **inputs):
        return [row.cpu() for row in live_subject().calls.kl_per_response(args, **inputs)]


class Unsteady:
    """A KL that is off by an ulp at each third call."""

    def __init__(self) -> None:
        self.calls = itertools.count()

    def kl_per_response(self, args, **inputs):
        last_bit = 1 + 2.0**-23 * (next(self.calls) % 3 == 2)
        return [row * last_bit for row in live_subject().calls.kl_per_response(args, **inputs)]


class OtherwiseThere:
    """A KL that is another one off the CPU."""

    def kl_per_response(self, args, *, log_probs, **inputs):
        rows = live_subject().calls.kl_per_response(args, log_probs=log_probs, **inputs)
        return rows if log_probs[0].device.type == "cpu" else [row + 2.0**-10 for row in rows]


@pytest.mark.parametrize(
    ("subject", "device", "judges"),
    [
        (Mixed, PRETEND, {"bits", "contract", "rounding"}),
        (Strayed, PRETEND, {"placement"}),
        (Unsteady, OTHER, {"determinism"}),
        (OtherwiseThere, PRETEND, {"bits", "rounding"}),
    ],
)
def test_what_is_wrong_on_a_device_is_noticed(subject, device, judges):
    """Mixed devices, a result left on the host, unsteady bits and another formula each turn the judge made for it."""
    found = examine_on(device, KL, f"{__name__}:{subject.__name__}")
    assert {judge for judge, against in unlike(found) if against not in ("frozen", "golden")} == judges


class TestSteps:
    """GDPO's steps on tensors."""

    @pytest.mark.parametrize("case", [STEPS12, STEP3, find("advantage.estimate/gdpo/field-unequal-lengths")])
    def test_steps_have_the_cpus_bits(self, case):
        """Each group and each batch is compared, element by element."""
        judged = judge_steps(case, PRETEND)
        assert [one for one in judged if not one.agrees] == []
        assert len([one for one in judged if one.ulps == 0.0]) >= 1

    def test_the_steps_are_those_of_the_stage(self):
        """Group after group, combine_group gives what the reward stage gives its samples."""
        _, rewards = live_subject().calls.post_process_rewards(STEPS12.arguments(), STEPS12.fresh_inputs()["samples"])
        combined = torch.cat(list(steps(STEPS12, lambda tensor: tensor).values()))
        assert sorted(combined.tolist()) == sorted(rewards)
        assert combined.abs().max() > 0

    @pytest.mark.parametrize(("case", "step"), [(STEPS12, "combine_group"), (STEP3, "whiten_segments")])
    def test_another_bit_is_noticed(self, case, step, monkeypatch):
        """A step that is off by an ulp where its tensors are elsewhere turns the judge."""
        original = getattr(gdpo_steps, step)

        def off(values, plan):
            moved = not isinstance(values, torch.Tensor) or values.device.type != "cpu"
            result = original(values, plan).cpu()
            return torch.nextafter(result, result + 1) if moved else result

        monkeypatch.setattr(gdpo_steps, step, off)
        assert any(not one.agrees for one in judge_steps(case, PRETEND))

    @pytest.mark.parametrize("identity", ["kl.estimate/grpo/k3-coef0.1", "advantage.estimate/gdpo/plan-none"])
    def test_other_cases_have_no_step(self, identity):
        """Other stages and malformed plans are left out."""
        assert judge_steps(find(identity), PRETEND) == []


class TestVerb:
    """``relax-verify device``."""

    CHOICE = ("--case", "kl.estimate/grpo/k3-*", "--case", "advantage.estimate/gdpo/vector-0005-*")

    def test_a_device_that_holds(self, capsys):
        """Exit status 0, the device among the facts, the verdict last."""
        assert main(["device", "pretend", *self.CHOICE]) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[-1] == "VERDICT equivalent"
        assert re.search(r"^device +pretend$", out, re.MULTILINE)
        assert "its first call" in out

    def test_json(self, capsys):
        """The report as data names the subject and the device."""
        assert main(["device", "pretend", *self.CHOICE, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["subject"] == "live on pretend"
        assert told["environment"]["device"] == "pretend"

    def test_no_gpu_is_exit_status_2(self, capsys, monkeypatch):
        """One line says why, and there is no verdict."""
        monkeypatch.setattr(device_module, "why_no_gpu", lambda: "none was built in")
        assert main(["device"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("relax-verify device: no device cuda here: none was built in;")
        assert len(said.err.splitlines()) == 1

    def test_no_tensor_is_exit_status_2(self, capsys):
        """A choice of cases without tensors is no question for a device."""
        assert main(["device", "pretend", "--stage", "roles.resolve"]) == 2
        assert "none of the chosen cases has tensors" in capsys.readouterr().err

    def test_a_difference_is_exit_status_1(self):
        """What the judges find reaches the report: here a device that doubles what is moved to it."""
        assert run_device_check(PRETEND, [KL]).exit_code == 0
        doubling = Device("pretend", lambda tensor: PRETEND.place(tensor * 2), PRETEND.lanes, rounds=1, as_cpu=True)
        assert run_device_check(doubling, [KL]).exit_code == 1
