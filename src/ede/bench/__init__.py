"""How fast this machine is at what EDE does: operations counted, seconds measured, the floor that follows from both."""
