"""What stands in the code blocks of the pages is Python, valid pipelines and real commands."""

import os
import shlex
from pathlib import Path

import click
import pytest

from tests.docs.blocks import ROOT, Block, all_blocks, blocks
from tidelog.cli import tidelog
from tidelog.spark.pipeline.file.document import read_document
from tidelog.spark.pipeline.file.parsing import parse
from tidelog.spark.pipeline.file.problems import Problems
from tidelog.spark.pipeline.pipeline_file import read_pipeline_file

PIPELINES = ROOT / "docs" / "pipelines.md"

# What a part of a pipeline file needs around it.
_FRAME = {
    "[pipeline]": '[pipeline]\nname = "example"\ncheckpoint = "checkpoint"\n',
    "[brokers]": '[brokers]\nbootstrap = "localhost:9092"\n',
}


@pytest.mark.parametrize("block", all_blocks("python"), ids=str)
def test_a_block_of_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


def commands() -> list[tuple[str, str]]:
    """The commands of `tidelog` in all blocks for a shell, each with its place."""
    found = []
    for block in all_blocks("sh"):
        for number, line in enumerate(block.text.splitlines()):
            for part in line.split(" | "):
                if part.strip().startswith("tidelog "):
                    place = f"{block.page.relative_to(ROOT)}:{block.line + number}"
                    found.append((place, part.strip()))
    return found


@pytest.mark.parametrize(("place", "line"), commands(), ids=lambda each: str(each)[:60])
def test_a_command_is_one_that_tidelog_takes(place: str, line: str) -> None:
    words = shlex.split(line.split(" > ")[0], comments=True)[1:]
    group: click.Command = tidelog
    context: click.Context | None = None
    name = "tidelog"
    try:
        while isinstance(group, click.Group):
            context = group.make_context(name, words, parent=context)
            found, command, words = group.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert found is not None
            assert command is not None
            name, group = found, command
        group.make_context(name, words, parent=context)
    except click.ClickException as error:
        if "does not exist" in error.message:
            return  # a file of the reader's
        pytest.fail(f"{place}: {line}: {error.format_message()}")


@pytest.mark.parametrize("block", blocks(PIPELINES, "toml"), ids=str)
def test_a_block_of_toml_is_a_valid_pipeline_or_a_part_of_one(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    for python in blocks(PIPELINES, "python"):
        if "def score" in python.text:
            (tmp_path / "scoring.py").write_text(python.text)
    if "[pipeline]" in block.text:
        file.write_text(block.text)
        problems = read_pipeline_file(file, {}).problems
    else:
        around = "".join(text for header, text in _FRAME.items() if header not in block.text)
        file.write_text(around + block.text)
        found = Problems()
        document = read_document(file, os.environ, found)
        if document is not None:
            parse(document)
        problems = tuple(found)
    assert not problems, f"{block}: {'; '.join(map(str, problems))}"
