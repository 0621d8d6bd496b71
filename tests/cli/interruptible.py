"""The command `tidelog` as a program that can be interrupted.

What a shell runs in the background ignores interrupts, and hands that on to what it starts: tests
that are run so would wait for ever for a program that they interrupt.
"""

import sys

_PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tidelog.cli import main
main()
"""

INTERRUPTIBLE = (sys.executable, "-c", _PROGRAM)
