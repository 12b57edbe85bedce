"""Watching an agent: one episode, what it saw, what it believed and what it did, on one page."""
