"""What can go wrong with a lake."""

from tidelog.spark.errors import SparkError


class LakeError(SparkError):
    """The lake cannot be read or written as asked; the text names the path and what to do."""


class CommitConflict(LakeError):
    """Another writer committed first; what was decided on the old snapshot must be decided anew."""
