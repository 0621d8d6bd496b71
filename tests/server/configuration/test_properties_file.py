"""Java's properties format. What is expected here is what java.util.Properties gives."""

import pytest

from tidelog.server.configuration.properties_file import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("  a : b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\tb=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a=\nb=", {"a": "", "b": ""}),
        ("# no\n! neither\n\n   # nor this\na=#yes", {"a": "#yes"}),
        ("a=b,\\\n    c,\\\n\td\ne=f", {"a": "b,c,d", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\", {"a": "b"}),
        ("# a comment does not go on \\\na=b", {"a": "b"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=C:\\\\data\\tx", {"a": "C:\\data\tx"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=\\q", {"a": "q"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a=b\u2028c", {"a": "b\u2028c"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_broken_escape_is_named_with_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"line 2: \\u12 is not"):
        parse_properties("a=b\nc=\\u12")
