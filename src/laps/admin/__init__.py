"""The admin API: what a relay knows, over HTTP, in the relay's own loop.

    server.py     a socket that listens, and loads the rest when somebody connects
    web.py        Starlette and uvicorn in the relay's loop
    routes.py     what is asked for, and who answers
    auth.py       who may ask
    answers.py    lists a page at a time, made in slices that nobody notices
    views.py      rows that need addresses, bytes and round trips beside what `relay.views` knows
    metrics.py    the same for Prometheus
    health.py     whether it lives, and whether it is of use
    openapi.py    the description of all of it

Nothing is gathered while nobody asks, and nothing here changes anything.
"""
