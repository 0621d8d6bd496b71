"""What the coordinators write to their internal topics, in Kafka's own formats."""
