"""GDPO's step 3 over thousands of virtual ranks, through the code that real ranks run."""

from __future__ import annotations

from verification.ranks.scale import prove_at_scale


def test_four_thousand_ranks_give_the_bits_of_one_process():
    """4,096 ranks, 64 optimizer batches, 262,144 samples: every sample's bits, in two exchanges a rank."""
    proof = prove_at_scale()
    assert (proof.ranks, proof.segments, proof.samples) == (4096, 64, 262_144)
    assert proof.holds, f"{proof}: {proof.failures[:3]}"
    assert proof.grown_bytes < 2**30
