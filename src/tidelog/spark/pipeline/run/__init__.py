"""A pipeline while it runs: its session, its queries, their supervision, what others see of it."""
