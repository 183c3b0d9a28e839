"""A byte order mark at the head of a manifest: it is read, and stays whatever a command writes there."""

from pathlib import Path

from tests.cli.running import scaffold

MARK = b"\xef\xbb\xbf"
COMMANDS = (
    ("check", "--strict"),
    ("new-op", "third", "--inputs", "x, bias", "--forward", "x + bias"),
    ("new-op", "third", "--inputs", "x, bias", "--forward", "x + bias"),
    ("rename", "third", "moved"),
    ("remove", "moved"),
    ("sync",),
)


def test_the_mark_of_a_manifest_survives(synced: Path) -> None:
    manifest = synced / "ops.toml"
    manifest.write_bytes(MARK + manifest.read_bytes().replace(b"\n", b"\r\n"))
    before = manifest.read_bytes()
    for command in COMMANDS:
        more = ("--no-verify",) if command[0] == "new-op" else ()
        told = scaffold(synced, *command, *more)
        assert told.code == 0, (command, told.err)
        assert manifest.read_bytes()[:3] == MARK, command
        assert manifest.read_bytes().count(MARK) == 1, command
    assert manifest.read_bytes() == before


def test_a_second_run_changes_nothing(synced: Path) -> None:
    """A generated file that got a mark is no news, and keeps it."""
    path = synced / "ops" / "scale.py"
    path.write_bytes(MARK + path.read_bytes())
    before = path.read_bytes()
    assert scaffold(synced, "sync").code == 0
    assert path.read_bytes() == before
