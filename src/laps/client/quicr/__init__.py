"""QUICR for applications: what `laps.connect("quicr://HOST:PORT")` is made of."""
