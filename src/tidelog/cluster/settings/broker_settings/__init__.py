"""Kafka's broker settings, by area, with what this node makes of each.

Names, types and update modes are those of Kafka 4.3; so are the defaults, except where another one
is the truth here. `tidelog.cluster.settings.broker_config` puts the areas together.
"""
