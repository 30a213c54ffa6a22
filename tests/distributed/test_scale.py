"""GDPO's step 3 over many virtual ranks, through the code that real ranks run; the bench proves it over thousands."""

from __future__ import annotations

from verification.ranks.scale import prove_at_scale


def test_a_thousand_ranks_give_the_bits_of_one_process():
    """1,024 ranks, 64 optimizer batches, 65,536 samples: every sample's bits, in two exchanges a rank."""
    proof = prove_at_scale(1024, 64, 65_536)
    assert (proof.ranks, proof.segments, proof.samples) == (1024, 64, 65_536)
    assert proof.holds, f"{proof}: {proof.failures[:3]}"
    assert proof.grown_bytes < 2**30
