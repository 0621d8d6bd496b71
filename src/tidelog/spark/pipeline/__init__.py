"""Pipelines as files: sources, Spark SQL steps and sinks in TOML.

Reading, checking and planning need no Spark; running does.
"""

from tidelog.spark.pipeline.pipeline import Pipeline, PipelineError, RunningPipeline

__all__ = ["Pipeline", "PipelineError", "RunningPipeline"]
