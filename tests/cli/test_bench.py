"""`tidelog bench`."""

import json

from tests.cli.conftest import Run


def test_bench_measures_and_cleans_up(run: Run) -> None:
    produced = json.loads(run("bench", "produce", "-n", "2000", "--size", "100", "--json").stdout)
    assert produced["records"] == 2000
    assert produced["latency_ms"]["p99"] > 0
    consumed = json.loads(run("bench", "consume", "-n", "2000", "--size", "100", "--json").stdout)
    assert consumed["records"] == 2000
    end = run("bench", "end-to-end", "-n", "200", "--rate", "500", "--size", "100").stdout
    assert "p99" in end
    listed = json.loads(run("topic", "list", "--json").stdout)
    assert not [each for each in listed if each["topic"].startswith("tidelog-bench")]
