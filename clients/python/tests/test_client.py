"""Against a real agent: `PEERLOCK=path/to/peerlock python3 -m unittest discover -s tests`, from the folder above."""

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
    """An agent with a folder of its own, on a free port."""

    def __init__(self, *options: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="peerlock-python-")
        self.socket = os.path.join(self.folder.name, "agent.sock")
        self.command = [os.environ["PEERLOCK"], "agent", "--listen", "127.0.0.1:0", "--http", f"unix:{self.socket}"]
        self.command += ["--http", "127.0.0.1:0", "--data-dir", os.path.join(self.folder.name, "data"), *options]
        self.log = open(os.path.join(self.folder.name, "log"), "w+b")
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        eventually(self._answers, "the agent answers")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._said()
        try:
            peerlock.Agent(self.socket)._transport.call("GET", "/v1/peers")
            return True
        except peerlock.Unreachable:
            return False

    def port(self) -> str:
        """Where it listens besides its socket."""
        said = re.search(r"http://(127\.0\.0\.1:\d+)", self._said())
        assert said is not None, self._said()
        return said[1]

    def connections(self) -> int:
        """How many TCP connections it has."""
        with open(f"/proc/{self.process.pid}/net/tcp", encoding="ascii") as file:
            port, established = ":%04X" % int(self.port().rsplit(":", 1)[1]), "01"
            rows = [line.split() for line in file]
        return sum(row[1].endswith(port) and row[3] == established for row in rows)

    def token(self) -> str:
        with open(os.path.join(self.folder.name, "data", "token"), encoding="ascii") as file:
            return file.read().strip()

    def _said(self) -> str:
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(PATIENCE)
        self.log.close()
        self.folder.cleanup()


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


class HangsUp(unittest.TestCase):
    def test_who_refuses_before_it_has_heard_all_is_heard(self) -> None:
        with tempfile.TemporaryDirectory(prefix="peerlock-python-") as folder:
            path = os.path.join(folder, "agent.sock")
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
    def test_at_a_port_there_is_a_token(self) -> None:
        port = self.running.port()
        with self.assertRaises(peerlock.Failed) as refused:
            peerlock.Agent(port).lock("it").acquire()
        self.assertEqual(refused.exception.kind, "unauthorized")
        with peerlock.Agent(port, token=self.running.token()).lock("it") as grant:
            self.assertFalse(grant.lost.is_set())

    def test_one_at_a_time_and_numbers_rise(self) -> None:
        inside, most, numbers = [0], [0], []

        def work() -> None:
            for _ in range(10):
                with self.agent.lock("it") as grant:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    numbers.append(grant.fencing)
                    time.sleep(0.001)
                    inside[0] -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual((most[0], len(numbers)), (1, 40))
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_slots_and_who_does_not_wait(self) -> None:
        with self.agent.semaphore("pool", 2, label="a") as first, self.agent.semaphore("pool", 2) as second:
            self.assertEqual({first.slot, second.slot}, {0, 1})
            with self.assertRaises(peerlock.NotAcquired) as refused:
                self.agent.semaphore("pool", wait=0).acquire()
            self.assertEqual(refused.exception.kind, "not_acquired")
            holders = self.agent.show("pool")["holders"]
            self.assertIn("'a'", str(holders))
        with self.agent.semaphore("pool", 2, wait=0):
            pass

    def test_a_name_is_removed_when_nobody_uses_it(self) -> None:
        with self.agent.lock("short lived/1"):
            with self.assertRaises(peerlock.Failed) as refused:
                self.agent.remove("short lived/1")
            self.assertEqual(refused.exception.kind, "in_use")
        self.agent.remove("short lived/1")
        with self.assertRaises(peerlock.Failed) as refused:
            self.agent.remove("short lived/1")
        self.assertEqual(refused.exception.kind, "no_such_resource")

    def test_another_number_of_slots_is_refused_with_the_agents_words(self) -> None:
        with self.agent.lock("it"):
            with self.assertRaises(peerlock.Failed) as refused:
                self.agent.semaphore("it", 5).acquire()
        self.assertEqual((refused.exception.kind, refused.exception.fields["has"]), ("slots_mismatch", 1))

    def test_a_wait_ends_in_time_or_when_it_is_released(self) -> None:
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
            eventually(lambda: self.agent.show("it")["queue"], "it waits")
            waiting.release()
            thread.join(PATIENCE)
            self.assertEqual(len(ended), 1)
            eventually(lambda: not self.agent.show("it")["queue"], "its place is free")

    def test_who_loses_its_agent_and_finds_no_other_loses_its_slot(self) -> None:
        heard = threading.Event()
        with self.assertRaises(peerlock.Lost):
            with self.agent.lock("it", ttl=2.0, on_lost=lambda _: heard.set()) as grant:
                self.running.process.kill()
                self.assertTrue(grant.lost.wait(PATIENCE))
                self.assertTrue(heard.wait(PATIENCE))
                with self.assertRaises(peerlock.Lost):
                    grant.check()

    def test_who_loses_its_agent_goes_on_at_the_next_one(self) -> None:
        lost = threading.Event()
        with self.agent.lock("it", ttl=30.0, on_lost=lambda _: lost.set()) as grant:
            for _ in range(2):
                self.running.kill()
                self.running.start()
                eventually(lambda: self._holder() == grant.fencing, "the slot is held at the next agent")
                with self.assertRaises(peerlock.NotAcquired):
                    self.agent.lock("it", wait=0).acquire()
            time.sleep(1.0)
            self.assertFalse(lost.is_set())
        with self.agent.lock("it", wait=PATIENCE) as following:
            self.assertGreater(following.fencing, grant.fencing)

    def test_what_is_given_back_while_the_agent_is_away_stands_to_its_end_at_most(self) -> None:
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

    def test_wait_goes_on_across_a_restart_of_the_agent(self) -> None:
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
        eventually(is_waiting, "it waits")
        self.running.kill()
        self.running.start()
        eventually(is_waiting, "it waits at the next agent")
        self.assertFalse(held.lost.is_set(), held.why)
        first.release()
        waits.join(PATIENCE)
        self.assertEqual([grant.fencing > held.fencing for grant in entered], [True])

    def test_an_agent_that_stands_still_counts_as_lost_at_the_leases_end(self) -> None:
        hold = self.agent.lock("it", ttl=1.0)
        grant = hold.acquire()
        self.running.process.send_signal(signal.SIGSTOP)
        self.assertTrue(grant.lost.wait(PATIENCE))
        hold.release()

    def test_a_wait_may_be_longer_than_the_lease(self) -> None:
        first = self.agent.lock("it")
        first.acquire()
        threading.Timer(1.0, first.release).start()
        with self.agent.lock("it", ttl=0.5) as grant:
            self.assertGreater(grant.waited, 0.5)
            self.assertFalse(grant.lost.wait(1.0), grant.why)

    def test_leases_are_renewed(self) -> None:
        with self.agent.lock("it", ttl=0.5) as grant:
            self.assertFalse(grant.lost.wait(2.0), grant.why)

    def test_the_exception_of_the_body_is_not_hidden(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.agent.lock("it"):
                raise ZeroDivisionError
        with self.agent.lock("it", wait=0):
            pass

    def test_nobody_there(self) -> None:
        with self.assertRaises(peerlock.Unreachable) as nobody:
            peerlock.Agent("/nonexistent/agent.sock").lock("it").acquire()
        self.assertIn("peerlock agent", str(nobody.exception))


class ShortSession(WithAgent):
    options = ("--session", "2s")

    def test_a_lease_stands_no_longer_than_the_agents_session(self) -> None:
        hold = self.agent.lock("it", ttl=600.0)
        grant = hold.acquire()
        self.assertFalse(grant.lost.wait(3.0), "it is renewed for longer than that")
        self.running.process.send_signal(signal.SIGSTOP)
        self.assertTrue(grant.lost.wait(PATIENCE), "others may be inside long before 600 s are over")
        hold.release()


class Endpoint(unittest.TestCase):
    def test_it_is_where_commands_look(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            system = os.path.join(folder, "system.sock")
            cases: list[tuple[int, dict[str, str], str]] = [
                (0, {}, system),
                (7, {"PEERLOCK_AGENT": "host:1", "PEERLOCK_RUNTIME_DIR": "/r"}, "host:1"),
                (7, {"PEERLOCK_RUNTIME_DIR": "/r", "XDG_RUNTIME_DIR": "/x"}, "/r/agent.sock"),
                (7, {"XDG_RUNTIME_DIR": "/x"}, "/x/peerlock/agent.sock"),
                (7, {"PEERLOCK_DATA_DIR": folder, "XDG_RUNTIME_DIR": "/x"}, os.path.join(folder, "agent.sock")),
                (0, {"PEERLOCK_DATA_DIR": folder}, os.path.join(folder, "agent.sock")),
            ]
            for is_there in [False, True]:
                for user, variables, expected in cases:
                    # Who names none and never had one uses the machine's, if there is one.
                    shared = is_there and not any("PEERLOCK" in name for name in variables)
                    with (
                        mock.patch.dict(os.environ, {"HOME": folder, **variables}, clear=True),
                        mock.patch.object(os, "geteuid", lambda: user),
                        mock.patch.object(transport, "SYSTEM_SOCKET", system),
                    ):
                        self.assertEqual(transport.default_endpoint(), system if shared else expected)
                Path(system).touch()
            data = Path(folder, "peerlock")
            data.mkdir()
            Path(data, "agent.lock").touch()
            with (
                mock.patch.dict(os.environ, {"XDG_DATA_HOME": folder, "HOME": folder}, clear=True),
                mock.patch.object(os, "geteuid", lambda: 7),
                mock.patch.object(transport, "SYSTEM_SOCKET", system),
            ):
                self.assertEqual(transport.default_endpoint(), str(data / "agent.sock"), "it has its own")
                told = Path(folder, "told.sock")
                Path(data, "agent.lock").write_text(f"812\nstays\n{told}\n", encoding="utf-8")
                self.assertEqual(transport.default_endpoint(), str(data / "agent.sock"), "it has gone")
                told.touch()
                for variables in [{}, {"XDG_RUNTIME_DIR": "/x"}, {"PEERLOCK_DATA_DIR": str(data)}]:
                    with mock.patch.dict(os.environ, variables):
                        self.assertEqual(transport.default_endpoint(), str(told), "it says where it is")
                with mock.patch.dict(os.environ, {"PEERLOCK_RUNTIME_DIR": "/r"}):
                    self.assertEqual(transport.default_endpoint(), "/r/agent.sock")


class Asyncio(WithAgent):
    def test_many_wait_and_each_is_alone(self) -> None:
        numbers: list[int] = []
        inside = [0]

        async def work() -> None:
            async with self.aio.lock("it") as grant:
                inside[0] += 1
                self.assertEqual(inside[0], 1)
                numbers.append(grant.fencing)
                await asyncio.sleep(0.001)
                inside[0] -= 1

        async def crowd() -> None:
            await asyncio.gather(*(work() for _ in range(30)))

        asyncio.run(crowd())
        self.assertEqual((len(numbers), numbers), (30, sorted(numbers)))

    def test_a_cancelled_wait_leaves_its_place(self) -> None:
        async def story() -> None:
            async with self.aio.lock("it"):
                waiting = asyncio.ensure_future(self._enter())
                while not self.agent.show("it")["queue"]:
                    await asyncio.sleep(0.02)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
            eventually(lambda: not self.agent.show("it")["queue"], "its place is free")

        asyncio.run(story())

    async def _enter(self) -> None:
        async with self.aio.lock("it"):
            self.fail("it is held by another")

    def test_a_body_whose_slot_is_lost_is_cancelled(self) -> None:
        heard: list[int] = []

        async def story() -> None:
            async with self.aio.lock("it", ttl=2.0, on_lost=lambda grant: heard.append(grant.slot)):
                self.running.process.kill()
                await asyncio.sleep(PATIENCE)
                self.fail("it goes on without its slot")

        with self.assertRaises(peerlock.Lost):
            asyncio.run(story())
        self.assertEqual(heard, [0])


if __name__ == "__main__":
    unittest.main()
