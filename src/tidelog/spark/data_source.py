"""`format("tidelog")`: what Spark asks for when a query reads from or writes to topics."""

from pyspark.sql.datasource import DataSource


class TidelogDataSource(DataSource):
    """The source and the sink, with the options of Spark's Kafka source and sink.

    Spark makes it anew wherever it needs it, from the options alone.
    """

    @classmethod
    def name(cls) -> str:
        return "tidelog"
