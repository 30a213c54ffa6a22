"""Frozen copies of the seven baseline algorithms: straight-line loops, torch only, hash-locked by ``LOCK``.

Nothing here is tidied, sped up or shared with the code under test. An edit fails
``verification.frozen.lock.check_lock``.
"""
