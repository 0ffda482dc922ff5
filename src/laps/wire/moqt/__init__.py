"""MoQT: one vocabulary of messages and objects, and the drafts that write it as bytes."""
