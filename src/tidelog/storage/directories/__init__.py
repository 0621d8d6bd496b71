"""Log directories: their files, their checkpoints, and logs that move between them."""
