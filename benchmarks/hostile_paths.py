"""Hostile locations of external data: outside a model's folder, special files, or missing files."""

from __future__ import annotations

import os
from pathlib import Path

#: Contents of a file outside the folder, which no model may read or overwrite.
SECRET = b"SECRET!!" * 12
ELEMENTS = 12


def locations(place: Path, inside: Path) -> list[str]:
    """Names of files outside the folder, of special files, and of missing files."""
    (place / "secret").write_bytes(SECRET)
    (place / "folder").mkdir()
    (place / "folder" / "secret").write_bytes(SECRET)
    (inside / "data.bin").write_bytes(bytes(8 * ELEMENTS))
    (inside / "sub").mkdir()
    for name, target in (
        ("link", place / "secret"),
        ("relative", "../secret"),
        ("twice", "link"),
        ("loop", "loop"),
        ("nowhere", "../nothing"),
        ("process", "/proc/self/cwd"),
        ("up", ".."),
        ("folder", place / "folder"),
        ("sub/up", "../.."),
        ("zero", "/dev/zero"),
        ("é\u0301", place / "secret"),
    ):
        (inside / name).symlink_to(target)
    os.link(place / "secret", inside / "hard")
    os.mkfifo(inside / "pipe")
    return [
        "link",
        "relative",
        "twice",
        "loop",
        "nowhere",
        "process/secret",
        "up/secret",
        "folder/secret",
        "sub/up/secret",
        "zero",
        "hard",
        "pipe",
        "sub",
        "sub/",
        ".",
        "..",
        "./",
        "",
        " ",
        "m.onnx",
        "../secret",
        "sub/../../secret",
        "sub/../secret",
        "./../secret",
        "././../secret",
        "..//secret",
        "/",
        "//",
        "///etc/passwd",
        "/etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "/dev/fd/0",
        "/proc/self/environ",
        "/proc/self/mem",
        str(place / "secret"),
        str(inside / "data.bin"),
        f"/proc/self/root{place}/secret",
        "file:///etc/passwd",
        "file:../secret",
        "http://localhost/secret",
        "~",
        "~/secret",
        "$HOME/secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "..\\secret",
        "sub\\..\\..\\secret",
        "C:\\secret",
        "c:secret",
        "\\\\host\\share",
        "\\\\?\\C:\\x",
        "NUL",
        "CON",
        "data.bin\0",
        "../secret\0data.bin",
        "data.bin/",
        "data.bin/..",
        "data.bin/../../secret",
        "DATA.BIN",
        "data.bin:stream",
        "\u2024\u2024/secret",
        "\uff0e\uff0e\uff0fsecret",
        "..\u2215secret",
        "..\u2044secret",
        "é\u0301",
        "\u202ednoces/..",
        "a" * 255,
        "a" * 256,
        "a" * 5000,
        "a/" * 2000 + "b",
        "../" * 2000 + "etc/passwd",
        "\n",
        "data.bin\n",
        "*",
        "data.*",
        "-",
        "|cat ../secret",
        "`cat ../secret`",
        "\r../secret",
        "\t",
        "...",
        "....//secret",
    ]
