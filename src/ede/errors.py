"""The errors a user is meant to read."""


class EdeError(Exception):
    """A mistake the user can mend: its message is one sentence that says what to do.

    The command line prints it without a traceback and leaves with ``exit_code``.
    """

    exit_code = 2


class JobFailed(EdeError):
    """The words were right but the work could not be finished."""

    exit_code = 1
