"""Texts as the bytes of a file, and back: UTF-8, with the line ends that the file has.

In: a text or bytes. Out: the other. Invariant: line ends are the file's own affair; nothing is compared with them.
"""

from scaffold.errors import ScaffoldError

_MARK = b"\xef\xbb\xbf"  # which some editors put before a text


def encode(path: str, text: str) -> bytes:
    """The bytes of a text with newlines for line ends."""
    try:
        return unix(text.encode())
    except UnicodeEncodeError as error:
        raise ScaffoldError(
            f"the text of '{path}' cannot be written as UTF-8: {error.reason}"
        ) from None


def unix(data: bytes) -> bytes:
    """The bytes with newlines for line ends."""
    return data.replace(b"\r\n", b"\n")


def like(before: bytes, after: bytes) -> bytes:
    """The new content with the line endings that most lines of the old one have."""
    if before.count(b"\r\n") * 2 > before.count(b"\n"):
        return after.replace(b"\n", b"\r\n")
    return after


def merge_into(before: bytes, base: str, after: bytes) -> tuple[bytes, int]:
    """What a merge makes of a file, in its line ends, and its conflicts; UnicodeDecodeError if it is no text."""
    from scaffold.workspace.merging import merge  # most runs merge nothing

    mine = before.removeprefix(_MARK)
    text, conflicts = merge(base, unix(mine).decode(), unix(after).decode())
    mark = before[: len(before) - len(mine)]
    return mark + like(before, unix(text.encode())), conflicts
