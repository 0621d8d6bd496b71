"""`python -m tidelog` is `tidelog`."""

from tidelog.cli import main

main()
