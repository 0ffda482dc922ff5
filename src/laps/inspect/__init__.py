"""`laps show`, `laps explain` and `laps trace`: what relays know, and why data goes as it does.

    show.py       tables of one page, with the columns of columns.py; the network in a few figures
    explain.py    the tree that a track takes; paths.py, the path between two nodes
    trees.py      what explain finds, for drawing.py and for JSON
    trace.py      live objects at every relay at once, and the delay of each hop
    relays.py     which relays are asked; names.py, which track or node a person means
    units.py      amounts as people read them

It knows relays by their admin API alone.
"""
