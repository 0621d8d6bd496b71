"""`python -m tidelog.cli` is `tidelog`."""

from tidelog.cli import main

main()
