"""`laps dashboard`: one live page about a network of relays.

It knows relays by their admin API alone. `watching` asks each of them once a second, `picture`
puts the answers together, `history` keeps ten minutes of figures and events, and `server` serves
the page and what it asks for. The page itself is in `page/`, as plain files: nothing is built.
"""
