"""Functions of the pipelines beside this file: DataFrames in, a DataFrame out."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def score(messages: DataFrame, words: DataFrame, least: float) -> DataFrame:
    """Messages whose words weigh at least so much."""
    weights = {row.word: row.weight for row in words.collect()}

    @F.udf("double")
    def weigh(message: str) -> float:
        return sum(weights.get(word.strip(".,!?"), 0.0) for word in message.lower().split())

    return messages.withColumn("score", weigh("value")).where(F.col("score") >= least)
