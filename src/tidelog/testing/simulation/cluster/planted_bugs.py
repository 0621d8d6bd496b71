"""Deliberate mistakes in clusters, to show that the simulator finds them.

Each is a context manager that makes the real code wrong in one way, as a person might. A test runs
seeds with each of them until one fails; without the bug the same seed is clean.
"""

from __future__ import annotations

from tidelog.testing.simulation.cluster.controller_bugs import CONTROLLER_BUGS
from tidelog.testing.simulation.cluster.coordination_bugs import COORDINATION_BUGS
from tidelog.testing.simulation.cluster.replication_bugs import REPLICATION_BUGS
from tidelog.testing.simulation.planting import Plantation

PLANTED_BUGS = Plantation({**REPLICATION_BUGS, **CONTROLLER_BUGS, **COORDINATION_BUGS})
planted = PLANTED_BUGS.planted
