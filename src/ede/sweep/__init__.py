"""Sweeps: a table of cells becomes a folder of run folders; only the missing ones are run."""
