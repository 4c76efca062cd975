"""Tests with a real agent: `PEERLOCK=path/to/peerlock python3 -m unittest discover -s tests`, from this package."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import peerlock
from peerlock import transport

PATIENCE = 30.0


class AgentProcess:
    """An agent with its own directory, on a free port."""

    def __init__(self, *options: str) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="peerlock-python-")
        self.socket = os.path.join(self.directory.name, "agent.sock")
        self.command = [os.environ["PEERLOCK"], "agent", "--listen", "127.0.0.1:0", "--http", f"unix:{self.socket}"]
        self.command += ["--http", "127.0.0.1:0", "--data-dir", os.path.join(self.directory.name, "data"), *options]
        self.log = open(os.path.join(self.directory.name, "log"), "w+b")
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        eventually(self._answers, "the agent to answer")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._output()
        try:
            peerlock.Agent(self.socket)._transport.call("GET", "/v1/peers")
            return True
        except peerlock.Unreachable:
            return False

    def port(self) -> str:
        """Returns its TCP address for clients."""
        address = re.search(r"http://(127\.0\.0\.1:\d+)", self._output())
        assert address is not None, self._output()
        return address[1]

    def connections(self) -> int:
        """Returns its number of TCP connections."""
        with open(f"/proc/{self.process.pid}/net/tcp", encoding="ascii") as file:
            port, established = ":%04X" % int(self.port().rsplit(":", 1)[1]), "01"
            rows = [line.split() for line in file]
        return sum(row[1].endswith(port) and row[3] == established for row in rows)

    def token(self) -> str:
        with open(os.path.join(self.directory.name, "data", "token"), encoding="ascii") as file:
            return file.read().strip()

    def _output(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE)
        self.log.close()
        self.directory.cleanup()


def eventually(is_so, what: str) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.02)


class WithAgent(unittest.TestCase):
    options: tuple[str, ...] = ()

    def setUp(self) -> None:
        self.running = AgentProcess(*self.options)
        self.addCleanup(self.running.stop)
        self.agent = peerlock.Agent(self.running.socket)
        self.aio = peerlock.aio.Agent(self.running.socket)


class EarlyClose(unittest.TestCase):
    def test_refusal_before_the_request_is_read_is_raised(self) -> None:
        with tempfile.TemporaryDirectory(prefix="peerlock-python-") as directory:
            path = os.path.join(directory, "agent.sock")
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()

                def refuse() -> None:
                    body = json.dumps({"error": "refused", "class": "busy", "message": "too many"}).encode()
                    with listener.accept()[0] as stream:
                        stream.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

                thread = threading.Thread(target=refuse)
                thread.start()
                connection = transport.Transport(path, None).connect(PATIENCE)
                self.addCleanup(connection.close)
                thread.join(PATIENCE)
                with self.assertRaises(peerlock.Failed) as refused:
                    transport.Transport(path, None).ask(connection, "POST", "/v1/resources/a/acquire", {"label": "a"})
                self.assertIn("too many", str(refused.exception))


class Plain(WithAgent):
    def test_port_requires_the_token(self) -> None:
        port = self.running.port()
        with self.assertRaises(peerlock.Failed) as refused:
            peerlock.Agent(port).lock("it").acquire()
        self.assertEqual(refused.exception.kind, "unauthorized")
        with peerlock.Agent(port, token=self.running.token()).lock("it") as grant:
            self.assertFalse(grant.lost.is_set())

    def test_one_holder_at_a_time_with_rising_fencing_numbers(self) -> None:
        holders, most, numbers = [0], [0], []

        def work() -> None:
            for _ in range(10):
                with self.agent.lock("it") as grant:
                    holders[0] += 1
                    most[0] = max(most[0], holders[0])
                    numbers.append(grant.fencing)
                    time.sleep(0.001)
                    holders[0] -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual((most[0], len(numbers)), (1, 40))
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_semaphore_has_slots_and_wait_zero_is_refused(self) -> None:
        with self.agent.semaphore("pool", 2, label="a") as first, self.agent.semaphore("pool", 2) as second:
            self.assertEqual({first.slot, second.slot}, {0, 1})
            with self.assertRaises(peerlock.NotAcquired) as refused:
                self.agent.semaphore("pool", wait=0).acquire()
            self.assertEqual(refused.exception.kind, "not_acquired")
            holders = self.agent.show("pool")["holders"]
            self.assertIn("'a'", str(holders))
        with self.agent.semaphore("pool", 2, wait=0):
            pass

    def test_concluded_run_holds_its_slot(self) -> None:
        for endpoint in (self.agent, peerlock.Agent(self.running.port(), token=self.running.token())):
            name = f"report {id(endpoint)}"
            for attempt in (1, 2):
                hold = endpoint.lock(name, wait=PATIENCE)
                with hold:
                    self.assertEqual(hold.conclude(False, 600, attempts=2), attempt == 2)
                self.assertEqual(self.agent.show(name)["period"]["failures"], attempt)
                with self.assertRaises(RuntimeError):
                    hold.conclude(True, 600)
            with self.assertRaises(peerlock.NotAcquired):
                endpoint.lock(name, wait=0).acquire()

    def test_remove_deletes_an_unused_resource_only(self) -> None:
        with self.agent.lock("short lived/1"):
            with self.assertRaises(peerlock.Failed) as refused:
                self.agent.remove("short lived/1")
            self.assertEqual(refused.exception.kind, "in_use")
        self.agent.remove("short lived/1")
        with self.assertRaises(peerlock.Failed) as refused:
            self.agent.remove("short lived/1")
        self.assertEqual(refused.exception.kind, "no_such_resource")

    def test_other_number_of_slots_is_refused(self) -> None:
        with self.agent.lock("it"):
            with self.assertRaises(peerlock.Failed) as refused:
                self.agent.semaphore("it", 5).acquire()
        self.assertEqual((refused.exception.kind, refused.exception.fields["has"]), ("slots_mismatch", 1))

    def test_wait_ends_by_its_limit_or_by_release(self) -> None:
        with self.agent.lock("it"):
            with self.assertRaises(peerlock.NotAcquired):
                self.agent.lock("it", wait=0.2).acquire()
            waiting = self.agent.lock("it")
            ended: list[BaseException] = []

            def wait() -> None:
                try:
                    waiting.acquire()
                except peerlock.Error as error:
                    ended.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            eventually(lambda: self.agent.show("it")["queue"], "a waiter")
            waiting.release()
            thread.join(PATIENCE)
            self.assertEqual(len(ended), 1)
            eventually(lambda: not self.agent.show("it")["queue"], "an empty queue")

    def test_slot_is_lost_without_a_next_agent(self) -> None:
        reported = threading.Event()
        with self.assertRaises(peerlock.Lost):
            with self.agent.lock("it", ttl=2.0, on_lost=lambda _: reported.set()) as grant:
                self.running.process.kill()
                self.assertTrue(grant.lost.wait(PATIENCE))
                self.assertTrue(reported.wait(PATIENCE))
                with self.assertRaises(peerlock.Lost):
                    grant.check()

    def test_hold_continues_at_the_next_agent(self) -> None:
        lost = threading.Event()
        with self.agent.lock("it", ttl=30.0, on_lost=lambda _: lost.set()) as grant:
            for _ in range(2):
                self.running.kill()
                self.running.start()
                eventually(lambda: self._holder() == grant.fencing, "the holder at the next agent")
                with self.assertRaises(peerlock.NotAcquired):
                    self.agent.lock("it", wait=0).acquire()
            time.sleep(1.0)
            self.assertFalse(lost.is_set())
        with self.agent.lock("it", wait=PATIENCE) as following:
            self.assertGreater(following.fencing, grant.fencing)

    def test_release_without_an_agent_frees_the_slot_in_time(self) -> None:
        hold = self.agent.lock("it", ttl=2.0)
        hold.acquire()
        self.running.kill()
        hold.release()
        self.running.start()
        with self.agent.lock("it", wait=PATIENCE):
            pass

    def _holder(self) -> object:
        try:
            client = self.agent.show("it")["holders"][0].get("client")
        except peerlock.Error:
            return None
        return client and client.get("pid") and client["fencing"]

    def test_wait_continues_across_a_restart_of_the_agent(self) -> None:
        first = self.agent.lock("it")
        held = first.acquire()
        entered: list[peerlock.Grant] = []

        def wait() -> None:
            with self.agent.lock("it", wait=4 * PATIENCE) as grant:
                entered.append(grant)

        def is_waiting() -> bool:
            try:
                return len(self.agent.show("it")["queue"]) == 1
            except peerlock.Error:
                return False

        waits = threading.Thread(target=wait)
        waits.start()
        eventually(is_waiting, "a waiter")
        self.running.kill()
        self.running.start()
        eventually(is_waiting, "the waiter at the next agent")
        self.assertFalse(held.lost.is_set(), held.why)
        first.release()
        waits.join(PATIENCE)
        self.assertEqual([grant.fencing > held.fencing for grant in entered], [True])

    def test_frozen_agent_loses_the_slot_with_its_lease(self) -> None:
        hold = self.agent.lock("it", ttl=1.0)
        grant = hold.acquire()
        self.running.process.send_signal(signal.SIGSTOP)
        self.assertTrue(grant.lost.wait(PATIENCE))
        hold.release()

    def test_wait_may_be_longer_than_the_lease(self) -> None:
        first = self.agent.lock("it")
        first.acquire()
        threading.Timer(1.0, first.release).start()
        with self.agent.lock("it", ttl=0.5) as grant:
            self.assertGreater(grant.waited, 0.5)
            self.assertFalse(grant.lost.wait(1.0), grant.why)

    def test_leases_are_renewed(self) -> None:
        with self.agent.lock("it", ttl=0.5) as grant:
            self.assertFalse(grant.lost.wait(2.0), grant.why)

    def test_exception_of_the_body_is_raised(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.agent.lock("it"):
                raise ZeroDivisionError
        with self.agent.lock("it", wait=0):
            pass

    def test_absent_agent_is_unreachable(self) -> None:
        with self.assertRaises(peerlock.Unreachable) as absent:
            peerlock.Agent("/nonexistent/agent.sock").lock("it").acquire()
        self.assertIn("peerlock agent", str(absent.exception))


class ShortSession(WithAgent):
    options = ("--session", "2s")

    def test_lease_is_limited_by_the_agents_session(self) -> None:
        hold = self.agent.lock("it", ttl=600.0)
        grant = hold.acquire()
        self.assertFalse(grant.lost.wait(3.0), "it is renewed")
        self.running.process.send_signal(signal.SIGSTOP)
        self.assertTrue(grant.lost.wait(PATIENCE), "its session expires long before 600 s")
        hold.release()


class Endpoint(unittest.TestCase):
    def test_default_endpoint_is_that_of_the_commands(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            system = os.path.join(directory, "system.sock")
            cases: list[tuple[int, dict[str, str], str]] = [
                (0, {}, system),
                (7, {"PEERLOCK_AGENT": "host:1", "PEERLOCK_RUNTIME_DIR": "/r"}, "host:1"),
                (7, {"PEERLOCK_RUNTIME_DIR": "/r", "XDG_RUNTIME_DIR": "/x"}, "/r/agent.sock"),
                (7, {"XDG_RUNTIME_DIR": "/x"}, "/x/peerlock/agent.sock"),
                (7, {"PEERLOCK_DATA_DIR": directory, "XDG_RUNTIME_DIR": "/x"}, os.path.join(directory, "agent.sock")),
                (0, {"PEERLOCK_DATA_DIR": directory}, os.path.join(directory, "agent.sock")),
            ]
            for is_there in [False, True]:
                for user, variables, expected in cases:
                    # Without a named agent and one of its own, a user gets that of the machine.
                    shared = is_there and not any("PEERLOCK" in name for name in variables)
                    with (
                        mock.patch.dict(os.environ, {"HOME": directory, **variables}, clear=True),
                        mock.patch.object(os, "geteuid", lambda: user),
                        mock.patch.object(transport, "SYSTEM_SOCKET", system),
                    ):
                        self.assertEqual(transport.default_endpoint(), system if shared else expected)
                Path(system).touch()
            data = Path(directory, "peerlock")
            data.mkdir()
            Path(data, "agent.lock").touch()
            with (
                mock.patch.dict(os.environ, {"XDG_DATA_HOME": directory, "HOME": directory}, clear=True),
                mock.patch.object(os, "geteuid", lambda: 7),
                mock.patch.object(transport, "SYSTEM_SOCKET", system),
            ):
                self.assertEqual(transport.default_endpoint(), str(data / "agent.sock"), "its own agent")
                recorded = Path(directory, "recorded.sock")
                Path(data, "agent.lock").write_text(f"812\nstays\n{recorded}\n", encoding="utf-8")
                self.assertEqual(transport.default_endpoint(), str(data / "agent.sock"), "its agent is gone")
                recorded.touch()
                for variables in [{}, {"XDG_RUNTIME_DIR": "/x"}, {"PEERLOCK_DATA_DIR": str(data)}]:
                    with mock.patch.dict(os.environ, variables):
                        self.assertEqual(transport.default_endpoint(), str(recorded), "the recorded socket")
                with mock.patch.dict(os.environ, {"PEERLOCK_RUNTIME_DIR": "/r"}):
                    self.assertEqual(transport.default_endpoint(), "/r/agent.sock")


class Asyncio(WithAgent):
    def test_many_waiters_hold_one_at_a_time(self) -> None:
        numbers: list[int] = []
        holders = [0]

        async def work() -> None:
            async with self.aio.lock("it") as grant:
                holders[0] += 1
                self.assertEqual(holders[0], 1)
                numbers.append(grant.fencing)
                await asyncio.sleep(0.001)
                holders[0] -= 1

        async def gather() -> None:
            await asyncio.gather(*(work() for _ in range(30)))

        asyncio.run(gather())
        self.assertEqual((len(numbers), numbers), (30, sorted(numbers)))

    def test_cancelled_wait_leaves_the_queue(self) -> None:
        async def scenario() -> None:
            async with self.aio.lock("it"):
                waiting = asyncio.ensure_future(self._enter())
                while not self.agent.show("it")["queue"]:
                    await asyncio.sleep(0.02)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
            eventually(lambda: not self.agent.show("it")["queue"], "an empty queue")

        asyncio.run(scenario())

    async def _enter(self) -> None:
        async with self.aio.lock("it"):
            self.fail("the slot is held")

    def test_body_is_cancelled_when_its_slot_is_lost(self) -> None:
        reported: list[int] = []

        async def scenario() -> None:
            async with self.aio.lock("it", ttl=2.0, on_lost=lambda grant: reported.append(grant.slot)):
                self.running.process.kill()
                await asyncio.sleep(PATIENCE)
                self.fail("the body continues without its slot")

        with self.assertRaises(peerlock.Lost):
            asyncio.run(scenario())
        self.assertEqual(reported, [0])


if __name__ == "__main__":
    unittest.main()
