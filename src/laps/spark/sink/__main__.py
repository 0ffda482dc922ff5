"""`python -m laps.spark.sink FOLDER`: the companion of the sink whose folder that is."""

from laps.spark.sink.companion import main

main()
