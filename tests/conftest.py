from hypothesis import settings

# The same examples every time, so that two runs of one tree agree; the clock decides nothing.
settings.register_profile("default", deadline=None, derandomize=True)
# New ones every night, and many: a failure prints what replays it.
settings.register_profile("nightly", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("default")
