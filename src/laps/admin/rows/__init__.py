"""Rows, made out of a relay and its edge when somebody asks for them.

Nothing here is kept or counted while nobody asks, and nothing here changes anything. A list is a
`Table`: its keys are taken at once, and a row is made when its turn comes, so that a list of ten
thousand rows can be sent a few at a time. What has left meanwhile has no row.
"""
