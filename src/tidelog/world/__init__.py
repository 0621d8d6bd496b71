"""What a node takes from outside: see `tidelog.world.world`."""

from tidelog.world.world import World

__all__ = ["World"]
