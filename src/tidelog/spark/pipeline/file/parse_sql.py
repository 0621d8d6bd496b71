"""`sql` and `sql_file`: a query in the pipeline's file or beside it."""

from pathlib import Path

from tidelog.spark.pipeline.file.document import Section
from tidelog.spark.pipeline.file.model import SqlText
from tidelog.spark.pipeline.file.sql_query import read_query
from tidelog.spark.pipeline.file.sql_tokens import SqlError
from tidelog.spark.pipeline.file.variables import Unknown


def parse_sql(section: Section) -> SqlText | None:
    """The query of a section, or None with an error when it has none."""
    document = section.document
    inline = section.text("sql")
    if "sql_file" not in section:
        section.raw("sql_file")
        if inline is None:
            if "sql" not in section:
                section.missing("sql", " or 'sql_file'")
            return None
        lines = document.lines.texts[(*section.path, "sql")]
        return _read(section, inline, document.file, lines)
    file = Path(section.path_text("sql_file"))
    if "sql" in section:
        section.error(f"{section.label} has both 'sql' and 'sql_file'", "sql_file")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        section.error(f"'sql_file' cannot be read: {error}", "sql_file")
        return None
    return _read(section, text, file, tuple(range(1, text.count("\n") + 2)))


def _read(section: Section, text: str, file: Path, lines: tuple[int, ...]) -> SqlText:
    unread = SqlText(text, file, lines, None)
    if isinstance(text, Unknown):
        return unread
    try:
        return SqlText(text, file, lines, read_query(text))
    except SqlError as error:
        section.document.problems.error(file, unread.line(error.line), f"SQL: {error}")
        return unread
