"""Checks the agent's OpenAPI document with independent tools: a validator and a client generator.

`PEERLOCK=target/debug/peerlock python .ci/openapi/check.py`, with the packages of requirements.txt. Starts an agent,
validates its document, generates a client from it, and runs that against the agent.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from openapi_spec_validator import validate

PATIENCE = 60.0


def start(directory: Path) -> tuple[subprocess.Popen[bytes], str, str]:
    """Starts an agent on a free port, and returns it, its address and its token."""
    token = secrets.token_hex(32)
    # A token that others can read is refused.
    (directory / "token").touch(mode=0o600)
    (directory / "token").write_text(token)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [os.environ["PEERLOCK"], "agent", "--listen", "127.0.0.1:0", "--data-dir", str(directory / "data")]
    command += ["--http", f"unix:{directory / 'agent.sock'}", "--http", address, "--token-file", str(directory / "token")]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    return process, f"http://{address}", token


def document(address: str, token: str) -> dict[str, object]:
    request = urllib.request.Request(f"{address}/openapi.json", headers={"Authorization": f"Bearer {token}"})
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def generate(directory: Path) -> None:
    """Generates a client in `directory/made`. The generator omits parts that it cannot process, with a message."""
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(directory / "openapi.json"),
         "--output-path", str(directory / "made"), "--meta", "none", "--config", str(directory / "config.json")],
        capture_output=True, text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    for bad in ["Unable to process", "duplicate", "Could not find reference"]:
        assert bad not in made.stdout, made.stdout


def scenario(address: str, token: str) -> None:
    """Uses the generated client."""
    from made import AuthenticatedClient, models
    from made.api.agent import agent, healthz
    from made.api.administration import remove, resize
    from made.api.looking import cluster, list_, peers, show
    from made.api.slots import acquire, release, renew

    with AuthenticatedClient(base_url=address, token=token) as client:
        name = "a/b c"
        granted = acquire.sync(name, client=client, body=models.Request(slots=2, ttl_ms=60_000, label="made"))
        assert isinstance(granted, models.Granted) and granted.slot in (0, 1), granted
        which = models.Which(grant=granted.grant)
        renewed = renew.sync(name, client=client, body=which)
        assert isinstance(renewed, models.Renewed) and 0 < renewed.ttl_ms <= 60_000, renewed
        shown = show.sync(name, client=client)
        assert isinstance(shown, models.ResourceDetails), shown
        assert [slot.client.label for slot in shown.holders if slot.client] == ["made"], shown
        other = acquire.sync(name, client=client, body=models.Request(slots=3))
        assert isinstance(other, models.Failure) and (other.error, other.has) == ("slots_mismatch", 2), other
        assert isinstance(resize.sync(name, client=client, body=models.Slots(slots=3)), models.Done)
        assert [one.name for one in list_.sync(client=client)] == [name]
        assert isinstance(release.sync(name, client=client, body=which), models.Released)
        assert isinstance(remove.sync(name, client=client), models.Done)
        assert list_.sync(client=client) == []
        gone = release.sync(name, client=client, body=which)
        assert isinstance(gone, models.Failure) and gone.error == "lost", gone
        assert isinstance(healthz.sync(client=client), models.Healthy)
        assert [peer.is_me for peer in peers.sync(client=client)] == [True]
        assert isinstance(cluster.sync(client=client), models.ClusterView)
        assert isinstance(agent.sync(client=client), models.AgentView)
    with AuthenticatedClient(base_url=address, token="another") as client:
        refused = acquire.sync("a", client=client)
        assert isinstance(refused, models.Failure) and refused.error == "unauthorized", refused


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="peerlock-openapi-") as place:
        directory = Path(place)
        process, address, token = start(directory)
        try:
            loaded = document(address, token)
            validate(loaded)
            (directory / "openapi.json").write_text(json.dumps(loaded))
            # No linters for a client that is used once.
            (directory / "config.json").write_text(json.dumps({"post_hooks": []}))
            generate(directory)
            sys.path.insert(0, place)
            scenario(address, token)
        except BaseException:
            sys.stderr.write((directory / "log").read_text(errors="replace"))
            raise
        finally:
            process.kill()
            process.wait()
    print(f"{len(loaded['paths'])} routes, valid, and a client made from them works")


main()
