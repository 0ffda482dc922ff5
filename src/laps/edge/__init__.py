"""The clients of a relay, MoQT and QUICR: what they publish, subscribe to, fetch and watch."""
