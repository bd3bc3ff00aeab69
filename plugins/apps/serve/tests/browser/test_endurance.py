"""A hundred jobs in sequence: memory does not grow, and no file is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

EXAMPLES = Path(__file__).parents[5] / "examples"


def resident(process):
    """Resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_hundred_jobs_leave_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "tenonnx", "serve", "--no-browser", str(EXAMPLES / "digits")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            base, token = re.fullmatch(r"(http://.*)/\?token=(\w+)", server.stdout.readline().strip()).groups()

            def ask(path, question=None):
                body = None if question is None else json.dumps(question).encode()
                request = urllib.request.Request(f"{base}/api{path}", body, {"Authorization": f"Bearer {token}"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)

            model = ask("/models", {"file": "digits.onnx"})["id"]
            sizes = []
            for _ in range(100):
                job = ask("/jobs", {"task": "export", "model": model, "options": {"convert": {"--opset": ["17"]}}})
                while job["state"] in ("waiting", "running"):
                    time.sleep(0.05)
                    job = ask(f"/jobs/{job['id']}")
                assert job["state"] == "done"
                sizes.append(resident(server))
            sys.stdout.write(f"\nresident after 20 jobs {sizes[19] >> 10:,} KiB, after 100 {sizes[99] >> 10:,} KiB\n")
            assert sizes[99] - sizes[29] < 4 << 20, "bytes by which the server may vary"
            assert len(list(tmp_path.glob("tenonnx-serve-*/results/*"))) <= 21, "those that are remembered"
            server.send_signal(signal.SIGINT)
            server.wait(60)
        finally:
            server.kill()
    assert not list(tmp_path.iterdir())
