from laps.spark.pipeline.job import reason

PAGES = """\
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 267, in main
  File "bridge.py", line 27, in run
    return future.result(timeout_s)
           ^^^^^^^^^^^^^^^^^^^^^^^^
{error}
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: laps links [id = 0485bb18, runId = 0da82531]
Current Committed Offsets: {{}}
"""


def test_our_own_errors_speak_for_themselves() -> None:
    text = PAGES.format(error="laps.errors.HandshakeFailed: no relay answers: moqt://x: refused")
    assert reason(text) == "no relay answers: moqt://x: refused"


def test_other_errors_are_named() -> None:
    assert reason(PAGES.format(error="KeyError: 'x'")) == "KeyError: 'x'"
    assert reason(PAGES.format(error="pyarrow.lib.ArrowInvalid: bad\nline")) == "ArrowInvalid: bad"


def test_of_several_tracebacks_the_last_counts() -> None:
    first = "ValueError: first\n\nDuring handling of the above exception, another happened:\n\n"
    second = (
        'Traceback (most recent call last):\n  File "x.py", line 1\nlaps.errors.LapsError: both'
    )
    assert reason(PAGES.format(error=first + second)) == "both"


def test_an_error_of_sparks_own_is_its_first_line() -> None:
    assert reason("[STREAM_FAILED] no space left\n\tat org.apache.Spark") == (
        "[STREAM_FAILED] no space left"
    )
    assert reason("") == ""
