"""The settings of brokers, topics, groups and client metrics, and what they mean."""
