"""The data source `laps`: every track is a table.

    spark.dataSource.register(laps.spark.LapsDataSource)
    spark.readStream.format("laps").option("relay", …).option("namespace", "plant").load()

docs/spark.md has the options and the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from laps.spark.source.columns import decoded_fields, schema_of
from laps.spark.source.options import read_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from laps.spark.source.options import ReadOptions


class LapsDataSource(DataSource):
    """Reads and writes tracks."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "laps"

    def schema(self) -> str:
        """The columns of what is read."""
        # Whether it is a stream is not known here; what differs is checked by the readers.
        options = {**self.options}
        options.pop("endingoffsets", None)
        said = read_options(options, streaming=False)
        return schema_of(said.payload_format, said.payload_schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from laps.spark.source.batch_reader import LapsReader

        return LapsReader(self._checked(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        from laps.spark.source.stream_reader import LapsStreamReader

        return LapsStreamReader(self._checked(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from laps.spark.sink import LapsWriter

        return LapsWriter(dict(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from laps.spark.sink import LapsStreamWriter

        return LapsStreamWriter(dict(self.options), schema, overwrite)

    def _checked(self, schema: StructType, *, streaming: bool) -> ReadOptions:
        options = read_options(self.options, streaming=streaming)
        decoded_fields(schema, options.payload_format, options.payload_schema)
        return options
