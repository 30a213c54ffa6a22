"""Two revisions over the whole corpus: the same bits, or what differs, with the smallest input that shows it."""

SHRINK_SECONDS = 45.0  # for all smaller inputs together: the whole comparison ends in under two minutes
