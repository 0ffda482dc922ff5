"""Whole networks in one process: the same relays, under a seed, without a socket or a clock."""
