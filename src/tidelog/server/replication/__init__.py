"""Replication between nodes: what this node fetches from others, and what others fetch here."""
