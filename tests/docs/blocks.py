"""The code blocks of the pages."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<excuse>[^>]*) -->\n+)?"
    r"^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block by its language. `excuse` says why it is not run, if it is not."""

    page: Path
    line: int
    language: str
    text: str
    excuse: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of a language, in the order of the page."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["excuse"],
        )
        for found in _BLOCK.finditer(text)
        if found["language"] == language
    ]


def all_blocks(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, language)]
