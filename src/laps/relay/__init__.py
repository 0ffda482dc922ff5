"""The relay: the state machine that calls the rooms below it in order. No sockets, no clock."""
