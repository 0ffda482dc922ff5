"""LAPS: a network of relays that carries live tracks from publishers to subscribers."""
