import pytest

from tidelog.server.coordination.internal_topics import partition_for


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("zzzzzz", -685785664),
        ("日本", 835047),
    ],
)
def test_a_key_is_coordinated_where_kafka_would(key: str, java_hash: int) -> None:
    absolute = 0 if java_hash == -(2**31) else abs(java_hash)
    for count in (1, 4, 50):
        assert partition_for(key, count) == absolute % count
