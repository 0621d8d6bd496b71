"""The session that all tests with Spark share."""

from tests.spark.conftest import spark

__all__ = ["spark"]
