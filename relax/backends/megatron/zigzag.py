"""Where zig-zag context parallelism cuts a sequence, as arithmetic on lengths.

A sequence is padded to a multiple of ``2 * size`` and cut into as many chunks; rank r holds chunks r and
``2 * size - 1 - r``, so that every rank attends to about as much. The log-prob of a token comes from the logit before
it: a rank's part of a response is the tokens whose logits lie in its chunks.
"""

from __future__ import annotations


def chunk_length(total_length: int, cp_size: int, padded_total_length: int | None = None) -> int:
    """The length of each of the ``2 * cp_size`` chunks; without a padded length the shortest that hold the sequence."""
    length = total_length if padded_total_length is None else padded_total_length
    return -(-length // (2 * cp_size))


def zigzag_parts(
    total_length: int,
    response_length: int,
    *,
    cp_size: int,
    cp_rank: int,
    padded_total_length: int | None = None,
) -> tuple[range, range]:
    """The indices of a response, in [0, response_length), whose tokens rank ``cp_rank`` holds: one range a chunk.

    Response token j stands at ``total_length - response_length + j`` and its logit one before. The last logit of a
    sequence predicts nothing, padding neither. Raises ValueError for a response that fills its whole sequence, since no
    logit comes before its first token, and for a padded length that is too short or is no multiple of the chunks.
    """
    if not 0 <= response_length < max(total_length, 1):
        raise ValueError(
            f"response_length is {response_length} in a sequence of {total_length}: a response needs a token before it"
        )
    if padded_total_length is not None:
        multiple = 2 * cp_size if cp_size > 1 else 1
        if padded_total_length < total_length or padded_total_length % multiple:
            raise ValueError(
                f"padded_total_length is {padded_total_length} for a sequence of {total_length}: it must hold the "
                f"sequence and be a multiple of {multiple} for a context-parallel size of {cp_size}"
            )
    chunk = chunk_length(total_length, cp_size, padded_total_length)
    first_logit = total_length - response_length - 1

    def tokens_of(index: int) -> range:
        ends = (index * chunk - first_logit, (index + 1) * chunk - first_logit)
        return range(*(min(max(end, 0), response_length) for end in ends))

    return tokens_of(cp_rank), tokens_of(2 * cp_size - 1 - cp_rank)
