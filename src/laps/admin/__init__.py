"""The admin API: what a relay knows, over HTTP, for every program that looks into relays.

For programs that ask, and know no relay:

    schema/       one struct for each page and row, with every field described once
    client.py     asks relays, one or many at once, and decodes their answers

For a relay that answers, in its own loop:

    server.py     a socket that listens, and loads the rest when somebody connects
    web.py        Starlette and uvicorn in the relay's loop
    auth.py       which requests are answered
    routes.py     the paths, and the functions that answer them
    rows/         makes the structs out of a relay and its edge
    answers.py    lists a page at a time, made in slices that nobody notices
    trace.py      a stream of lines, one for each object of a track
    metrics.py    the fields that are marked as series, for Prometheus
    openapi.py    the description, generated from the structs

Nothing is gathered while nobody asks, and nothing here changes anything.
"""
