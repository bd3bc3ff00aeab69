"""Findings of ``tools/traced.py`` in the output of strace."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
try:
    from traced import findings
finally:
    sys.path.pop(0)


def test_findings_of_strace() -> None:
    lines = [
        '12 execve("/usr/bin/python", ["python"], 0x7 /* 3 vars */) = 0',
        '12 openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3',
        '12 openat(AT_FDCWD, "/tmp/own/a", O_WRONLY|O_CREAT, 0666) = 3',
        '12 openat(AT_FDCWD, "/home/me/.bashrc", O_WRONLY|O_APPEND) = 3',
        '12 openat(AT_FDCWD, "/root/refused", O_WRONLY) = -1 EACCES (Permission denied)',
        "13 connect(3, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0",
        '13 execve("/bin/sh", ["sh"], 0x7) = 0',
        '13 unlink("/home/me/x") = 0',
        "13 +++ exited with 0 +++",
    ]
    assert findings(lines, ["/tmp/own"], ["/usr/bin/python"]) == [
        "wrote /home/me/.bashrc",
        "connected 3, {sa_family=AF_INET, sin_port=htons(80)}, 16) = 0",
        "started /bin/sh",
        "unlink /home/me/x",
    ]
    read = findings(lines, ["/tmp/own"], ["/usr/bin/python"], ["/usr", "/models"])
    assert [each for each in read if each.startswith("read")] == ["read /etc/passwd"]


def test_paths_below_an_open_folder() -> None:
    lines = [
        '12 unlinkat(3</tmp/own/made>, "a", 0) = 0',
        '12 unlinkat(3</home/me>, "b", 0) = 0',
        '12 openat(AT_FDCWD</home/me>, "/tmp/own/c", O_WRONLY|O_CREAT, 0666) = 4</tmp/own/c>',
        '12 openat(AT_FDCWD</home/me>, "d", O_WRONLY|O_CREAT, 0666) = 4</home/me/d>',
    ]
    assert findings(lines, ["/tmp/own"], []) == ["unlinkat /home/me/b", "wrote /home/me/d"]


def test_interrupted_calls_are_joined() -> None:
    lines = [
        '12 execve("/home/me/bin/uname", ["uname"], 0x7 <unfinished ...>',
        '13 openat(AT_FDCWD, "/home/me/a", O_WRONLY|O_CREAT, 0666 <unfinished ...>',
        "12 <... execve resumed>) = -1 ENOENT (No such file or directory)",
        "13 <... openat resumed>) = 3",
        '14 unlink("/home/me/b" <unfinished ...>',
    ]
    assert findings(lines, [], []) == ["wrote /home/me/a", "unlink /home/me/b"]
