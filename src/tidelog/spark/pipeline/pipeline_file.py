"""Reading a pipeline file: the model, and everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.spark.pipeline.checks.option_checks import check_options
from tidelog.spark.pipeline.checks.rules import check
from tidelog.spark.pipeline.file.document import Document, read_document
from tidelog.spark.pipeline.file.model import PipelineSpec
from tidelog.spark.pipeline.file.parsing import parse
from tidelog.spark.pipeline.file.problems import Problem, Problems, Severity


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """What was read. With errors, `spec` is None."""

    file: Path
    spec: PipelineSpec | None
    problems: tuple[Problem, ...]
    document: Document | None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(each for each in self.problems if each.severity is Severity.ERROR)


def read_pipeline_file(
    file: str | os.PathLike[str], variables: Mapping[str, str] | None = None
) -> PipelineFile:
    """Read and check a file; variables come from the environment unless they are given here."""
    path = Path(os.path.abspath(file))
    problems = Problems()
    known = {**os.environ, **(variables or {})}
    document = read_document(path, known, problems, given=tuple(variables or ()))
    if document is None:
        return PipelineFile(path, None, tuple(problems), None)
    parsed = parse(document)
    check(document, parsed)
    if not problems.has_errors:
        check_options(document, parsed.spec)
    spec = None if problems.has_errors else parsed.spec
    return PipelineFile(path, spec, tuple(problems), document)
