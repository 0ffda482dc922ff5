"""The lab: a whole network on one machine, with a process for each relay, and traffic through it.

`network` says what there is, `processes` starts it, `traffic` publishes and subscribes, `watching`
asks the relays how they are, `running` puts them together, `doors` lets other terminals in, and
`screen` and `summary` show it.
"""
