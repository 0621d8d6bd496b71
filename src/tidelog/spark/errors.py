"""What a user of Tidelog on Spark can get wrong."""

from tidelog.errors import TidelogError


class SparkError(TidelogError):
    """Something that Tidelog on Spark needs is missing, or it could not do what was asked."""


class OptionError(SparkError):
    """An option is unknown, missing, or has a value that does not fit; the text names it."""


class DataLossError(SparkError):
    """Records that should be read are no longer there (`failOnDataLoss`)."""
