"""`laps lab chaos`: relays die, stand still and restart, links are slow and lossy, nothing is lost.

`network` says what there is, `faults` what happens to it under a seed, `running` lets it happen,
`cost` says what each fault cost, `memory` watches the relays, and `report` says how it went.
"""
