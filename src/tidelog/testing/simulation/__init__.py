"""The deterministic simulator: a world whose every delay and fault comes from a seed."""
