"""Jobs over topics and lakes: `audit` looks for what is missing, `hot_keys` for what is too much.

Each is a function on a DataFrame with the columns of the source; `topic_rows` makes those of a
topic or of an archive.
"""
