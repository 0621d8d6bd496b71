"""The generated pages say what the code says."""

import pytest

from tools.generate_docs import DOCS, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), f"docs/{name} is stale: run `make docs`"
