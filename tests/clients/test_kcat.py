"""kcat, the command-line client."""

import json
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)"
)


def kcat(bootstrap: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_produce_and_consume_with_keys_and_headers(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-H", "from=kcat", given="a:1\nb:2\n")
    out = kcat(bootstrap, "-C", "-t", topic, "-e", "-f", "%o %k %s %h\\n")
    assert out == "0 a 1 from=kcat\n1 b 2 from=kcat\n"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records(bootstrap: str, topic: str, compression: str) -> None:
    lines = "".join(f"line {i} {'x' * 50}\n" for i in range(300))
    kcat(bootstrap, "-P", "-t", topic, "-z", compression, given=lines)
    assert kcat(bootstrap, "-C", "-t", topic, "-e", "-q") == lines


def test_metadata_as_json(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, given="x\n")
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    assert topic in [each["topic"] for each in listed["topics"]]
    assert len(listed["brokers"]) == 1


def test_offsets_by_time(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, given="x\ny\n")
    assert f"{topic} [0] offset 0" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:1")
