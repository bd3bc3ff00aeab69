"""``tenonnx serve``: the printed address, and refused options."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import tenonnx_cli


def test_it_prints_an_address_serves_it_and_cleans_up(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tenonnx", "serve", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        try:
            address = server.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[0-9A-Za-z]{40,}", address)
            request = urllib.request.Request(f"{address.partition('?')[0]}api/state")
            request.add_header("Authorization", f"Bearer {address.partition('=')[2]}")
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.status == 200
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(address.partition("?")[0], timeout=60)
            assert [path.name.startswith("tenonnx-serve-") for path in tmp_path.iterdir()] == [True]
            server.send_signal(signal.SIGINT)
            server.wait(60)
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "--token"),
        (["--token", "a b"], "letters and digits"),
        (["nowhere.onnx"], "no model or folder"),
        (["--host", "no.such.host.invalid", "--token", "a" * 22], "listen"),
        (["--example", "1,3"], "--example was given for something other than a function"),
    ],
)
def test_invalid_arguments_are_refused(arguments, said, capsys):
    assert tenonnx_cli.main(["serve", "--no-browser", *arguments]) == tenonnx_cli.REFUSED
    assert said in capsys.readouterr().err
