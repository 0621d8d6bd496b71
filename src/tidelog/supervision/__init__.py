"""Nodes as processes of this machine: started, watched, started again, and never left behind."""
