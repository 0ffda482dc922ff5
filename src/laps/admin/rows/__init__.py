"""Read-only views of a relay, as rows of plain values: what everything that looks in is shown.

Nothing here is kept or counted while nobody asks. A view is a `Table`: its keys are taken at once,
and a row is made when its turn comes, so that whoever asks for ten thousand rows can be given them
a few at a time. What has gone meanwhile has no row.
"""
