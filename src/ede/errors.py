"""The one error a user is meant to read."""


class EdeError(Exception):
    """A mistake the user can mend: its message is one sentence that says what to do.

    The command line prints it without a traceback and leaves with exit code 2.
    """
