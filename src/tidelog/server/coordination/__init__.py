"""Coordinators on a node: shards on their partitions, markers, producer ids."""
