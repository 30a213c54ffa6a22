"""The Megatron side: losses, advantages and log-probs over the process groups of megatron.core."""
