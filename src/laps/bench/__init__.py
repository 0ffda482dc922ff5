"""Measurements: each beside its peers in one run, reported as ratios."""
