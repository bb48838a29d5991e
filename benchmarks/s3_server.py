"""A local S3 server from a separate environment (make setup-s3-server)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SERVER = ROOT / ".venv-s3" / "bin" / "moto_server"
SECRET = "a-made-up-secret"


def why_not() -> str:
    """Return why the server isn't installed, or an empty string."""
    try:
        import s3fs  # noqa: F401 # only whether it is there
    except ImportError:
        return "s3fs isn't installed: make setup-object-storage"
    return "" if SERVER.exists() else "there is no S3 server: make setup-s3-server"


@contextlib.contextmanager
def s3_server(log: Path, program: Path = SERVER) -> Iterator[Mapping[str, str]]:
    """Start a server without buckets; yield the environment variables by which clients find it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [str(program), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, env=clean) as server:
        try:
            _wait(f"http://127.0.0.1:{port}/moto-api/", server)
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "made-up",
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_DEFAULT_REGION": "us-east-1",
            }
        finally:
            server.terminate()


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError("the server ended before it answered")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError("the server doesn't answer")
