"""Server-side assignors: which member of a group should read which partition."""

from tidelog.coordinator.groups.assignors.assignor import Assignment, Assignor, MemberSubscription
from tidelog.coordinator.groups.assignors.range_assignor import assign_range
from tidelog.coordinator.groups.assignors.uniform_assignor import assign_uniform

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSubscription"]
