"""A pipeline's file: TOML with the lines of its keys, the model, and the SQL of its steps."""
