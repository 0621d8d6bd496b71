"""What may be wrong with a pipeline: told from its file, by the brokers, or by Spark."""
