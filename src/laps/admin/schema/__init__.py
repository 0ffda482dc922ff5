"""Every page of the admin API, and every row: one struct for each, and each field described once.

A relay makes these structs and writes them as JSON, `/openapi.json` is generated from them,
`/metrics` is made of the fields that are marked as series, and everyone who asks a relay decodes
its answers into them. A new column is a field here, and the place that measures it.

Fields have defaults, so that the answer of another version, which leaves one out or has more, can
be read. A relay always sends them all, but for those that are `UNSET` where they do not apply.
"""
