"""The writing half of the data source: rows become objects of tracks.

executor    objects     rows -> objects          staging     objects -> files
driver      publisher   files -> a relay         journal     what was published
between     calling     a commit -> companion    companion   the process that stays connected
"""

from laps.spark.sink.writers import LapsStreamWriter, LapsWriter

__all__ = ["LapsStreamWriter", "LapsWriter"]
