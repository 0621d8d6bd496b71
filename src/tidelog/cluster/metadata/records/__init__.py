"""The records of the metadata log, in Kafka's formats and under Kafka's ids."""
