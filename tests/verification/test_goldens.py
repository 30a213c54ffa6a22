"""The recorded bits hold: every case of the corpus against its golden, and the goldens against the corpus."""

from __future__ import annotations

import re

import pytest
import torch

from verification.cases import corpus
from verification.cases.case import Case
from verification.goldens import platform, provenance
from verification.goldens import snapshot as snapshot_module
from verification.goldens.compare import default_store, golden_of
from verification.goldens.digest import input_digest
from verification.goldens.guard import WritePermit
from verification.goldens.platform import ANY, holds_everywhere, platform_key, platform_of
from verification.goldens.snapshot import GoldenSnapshotExtension
from verification.goldens.store import GoldenStore
from verification.revisions.checkout import Checkout
from verification.subjects.live import live_subject

MOST_BYTES = 15 * 2**20  # what the goldens may add to a checkout


@pytest.fixture(scope="module")
def live():
    return live_subject()


@pytest.fixture(scope="module")
def store():
    store = default_store()
    if not store.platforms():
        pytest.skip("no golden here: none is recorded")
    return store


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case.id)
def test_live_gives_the_recorded_outcome(case, live, snapshot):
    """The working tree's arrays, changed inputs, aliases, texts or failure are those of the golden, to the bit."""
    if not default_store().has_platform(platform_of(case)):
        pytest.skip(f"no golden here: platform key {platform_of(case)}")
    assert (case, live.run(case)) == snapshot(name=case.id, extension_class=GoldenSnapshotExtension)


def test_no_case_was_forgotten(store):
    """Where a platform is recorded, every case of the corpus has its golden there."""
    platforms = store.platforms() & {ANY, platform_key()}
    recorded = set(store.entries())
    wanted = {(case.id, platform_of(case)) for case in corpus() if platform_of(case) in platforms}
    assert sorted(wanted - recorded) == []


def test_no_golden_outlived_its_case(store):
    """Every golden, of whatever platform, belongs to a case of the corpus, as it is now and in the right place."""
    everywhere = {case.id: holds_everywhere(case) for case in corpus()}
    astray = [(case, name) for case, name in store.entries() if everywhere.get(case) is not (name == ANY)]
    assert astray == []
    digests = {case.id: input_digest(case) for case in corpus()}
    assert [case for case, name in store.entries() if store.read(case, name).inputs != digests[case]] == []


def test_provenance_names_each_golden_once(store):
    """In each folder the recordings name exactly the goldens that lie there."""
    for folder in {store.path(case, name).parent for case, name in store.entries()}:
        named = [name for goldens in provenance.read(folder).values() for name in goldens]
        assert sorted(path.stem for path in folder.glob("*.txt")) == sorted(named), folder


def test_the_goldens_stay_small(store):
    """All goldens together stay below what a checkout can bear."""
    assert sum(path.stat().st_size for path in store.root.rglob("*") if path.is_file()) < MOST_BYTES


def test_a_missing_golden_is_no_snapshot_to_agree_with(tmp_path, monkeypatch):
    """Once a platform is recorded, a case without its file is not skipped, and finds nothing that it could equal."""
    empty = GoldenStore(tmp_path)
    held, missing = [case for case in corpus() if case.stage == "reward.signal" and case.error is None][:2]
    assert not empty.has_platform(platform_of(missing))
    outcome = live_subject().run(held)
    empty.write(golden_of(held, outcome), WritePermit(Checkout(tmp_path), "0" * 40))
    assert empty.has_platform(platform_of(missing))
    assert not empty.has_platform(platform_key())
    monkeypatch.setattr(snapshot_module, "default_store", lambda: empty)
    found = {case.id: _snapshot(case) for case in (held, missing)}
    assert found[held.id] is not None
    assert found[missing.id] is None


def _snapshot(case: Case) -> str | None:
    """What the extension reads for a case."""
    extension = GoldenSnapshotExtension()
    location = extension.get_location(test_location=None, index=case.id)
    return extension.read_snapshot_data_from_location(
        snapshot_location=location, snapshot_name=case.id, session_id="none"
    )


EVERYWHERE = [
    Case("reward.normalize/gdpo/x", "reward.normalize", "gdpo", {}),
    Case("advantage.estimate/gdpo/x", "advantage.estimate", "gdpo", {}),
    Case("reward.normalize/grpo/x", "reward.normalize", "grpo", {}, options={"exact_statistics": True}),
    Case("reward.signal/grpo/x", "reward.signal", "grpo", {}),
    Case("arguments.validate/ppo/x", "arguments.validate", "ppo", {}),
    Case("roles.resolve/ppo/x", "roles.resolve", "ppo", {}),
    Case("advantage.normalize/grpo/x", "advantage.normalize", "grpo", {}, error=("mask",)),
]
HERE = [
    Case("reward.normalize/grpo/x", "reward.normalize", "grpo", {}),
    Case("reward.normalize/grpo/x", "reward.normalize", "grpo", {}, options={"exact_statistics": False}),
    Case("advantage.estimate/grpo/x", "advantage.estimate", "grpo", {}, options={"exact_statistics": True}),
    Case("kl.estimate/gdpo/x", "kl.estimate", "gdpo", {}),
    Case("policy.loss/gdpo/x", "policy.loss", "gdpo", {}),
    Case("loss.reduce/gdpo/x", "loss.reduce", "gdpo", {}),
]


def test_what_rounds_correctly_or_not_at_all_has_one_golden():
    """Correct rounding, comparison, look-up and refusal hold everywhere; every other case is the platform's own."""
    assert [platform_of(case) for case in EVERYWHERE] == [ANY] * len(EVERYWHERE)
    assert [platform_of(case) for case in HERE] == [platform_key()] * len(HERE)


def test_the_platform_key_names_backend_version_capability_and_probes():
    """The key is one plain path segment that starts with what a reader recognises."""
    version = re.escape(torch.__version__.split("+")[0])
    assert re.fullmatch(rf"cpu-torch{version}-[a-z0-9]+-[0-9a-f]{{8}}", platform_key())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_platform_key_does_not_depend_on_threads(threads):
    """The probes run on one thread whatever the process uses, and the process gets its threads back."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert platform_key.__wrapped__() == platform_key()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", sorted(platform.probe_results()))
def test_one_bit_in_any_probe_is_another_platform(name, monkeypatch):
    """The digest covers the bits of every probe: the last bit of one element gives another key."""
    results = platform.probe_results()
    flat = results[name].clone().reshape(-1)
    flat.view(torch.int32)[-1] ^= 1
    monkeypatch.setattr(platform, "probe_results", lambda _: {**results, name: flat.reshape(results[name].shape)})
    assert platform_key.__wrapped__() != platform_key()


def test_the_probes_are_no_constants():
    """Every probe gives finite numbers that are neither all zero nor all the same where there are several."""
    for name, result in platform.probe_results().items():
        assert result.isfinite().all(), name
        assert result.abs().max() > 0, name
        assert result.numel() == 1 or result.unique().numel() > 1, name
