"""QUICR: names, control messages, and fragments of objects."""
