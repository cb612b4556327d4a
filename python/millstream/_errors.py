"""The exceptions of Millstream's own."""


class DataError(Exception):
    """The bytes of a data set are not what their format promises.

    The message names the file, where in it the trouble is, what was expected and what
    was found. Wrong arguments raise ``ValueError`` and failed reads raise ``OSError``.
    """


class DownloadError(OSError):
    """A file could not be fetched from any of its mirrors.

    The message says why each mirror failed and how to fetch the file by hand.
    """
