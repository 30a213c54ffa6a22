"""The harness: proves, to the bit, what a change to the numerics of ``relax`` does and does not change."""
