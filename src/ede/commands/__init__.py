"""One module a command: each has ``main(arguments: list[str]) -> int``."""
