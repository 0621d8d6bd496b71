from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.partitioners.key_hash import murmur2 as plain_murmur2
from tidelog.spark.encode.partitioning import murmur2
from tidelog.spark.runtime.compiled import byte_view


@given(before=st.binary(max_size=3), key=st.binary(max_size=50))
def test_the_hash_of_a_key_is_that_of_the_client(before: bytes, key: bytes) -> None:
    data = byte_view(before + key + b"after")
    assert murmur2(data, len(before), len(key)) == plain_murmur2(key)
