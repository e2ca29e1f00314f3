"""A user's file is written whole or not at all, by every command that writes one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from layoutalg.files import write_whole
from lowering.cli.main import main

Failure = Callable[[pytest.MonkeyPatch], None]
PROBE = ["probe", "ldmatrix.m8n8.x1.b16", "--machine", "simulator", "-o"]
COMMANDS = {
    "certificate.json": PROBE,
    "fragments.csv": ["export", "--instruction", "mma.m8n8k4.f64"],
    "map.svg": ["draw", "S[(8,4):(4@laneid,1@laneid)]", "--shape", "8,4", "-o"],
}


def half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full half-way."""
    write = Path.write_bytes

    def write_half(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", write_half)


def last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last step fail."""

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)


@pytest.mark.parametrize("failure", [half, last])
def test_a_failure_leaves_no_file_and_keeps_an_older_one(
    failure: Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    write_whole(old, b"older")
    failure(monkeypatch)
    for path in (new, old):
        with pytest.raises(OSError, match="disk full"):
            write_whole(path, b"newer and longer")
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_bytes() == b"older"


@pytest.mark.parametrize("failure", [half, last])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_fails_to_write_says_so_and_leaves_nothing(
    name: str, failure: Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    command = [*COMMANDS[name], str(path)]
    with monkeypatch.context() as broken:
        failure(broken)
        done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert done.stderr.endswith("layoutalg: disk full\n")
    assert not list(tmp_path.iterdir())
    assert CliRunner().invoke(main, command).exit_code == 0
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_behind_a_link_is_written(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"older")
    link.symlink_to(path)
    write_whole(link, b"newer")
    assert link.is_symlink()
    assert path.read_bytes() == b"newer"


def test_what_is_no_file_takes_the_data_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"data")
    assert os.read(reader, 16) == b"data"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"data")
