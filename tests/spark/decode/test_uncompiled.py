"""The same tests with the compiled functions run as plain Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(300)
@pytest.mark.skipif("TIDELOG_UNCOMPILED" in os.environ, reason="this is the inner run")
def test_uncompiled_code_gives_the_same_answers() -> None:
    here = Path(__file__).parent
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(here)],
        cwd=here.parents[2],
        env={**os.environ, "TIDELOG_UNCOMPILED": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
