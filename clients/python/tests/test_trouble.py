"""What goes wrong: agents that refuse, are slow or silent, and clients that are frozen, forked or cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler
from typing import Any, Callable, Iterator, Optional
from unittest import mock

from test_client import PATIENCE, WithAgent, eventually

import peerlock
from peerlock import transport

Answer = tuple[int, Any]


class Scripted:
    """An agent that says what a test tells it to. A verb is what it answers to each request of it, in turn; the last
    of them goes on. What is no answer is called, and may wait."""

    def __init__(self, **verbs: list[Any]) -> None:
        self.verbs: dict[str, Iterator[Any]] = {verb: self._endless(said) for verb, said in verbs.items()}
        self.heard: list[str] = []
        self.folder = tempfile.TemporaryDirectory(prefix="peerlock-python-")
        self.path = os.path.join(self.folder.name, "agent.sock")
        self.streams: list[Any] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                verb = self.path.rsplit("/", 1)[1]
                script.heard.append(verb)
                said = next(script.verbs[verb])
                status, body = said() if callable(said) else said
                if isinstance(body, list):
                    self.send_response(status)
                    self.send_header("Connection", "close")
                    self.end_headers()
                    script.streams.append(self.connection)
                    for line in body:
                        self.wfile.write(json.dumps(line).encode() + b"\n")
                    self.rfile.read(1)
                else:
                    text = json.dumps(body).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @staticmethod
    def _endless(said: list[Any]) -> Iterator[Any]:
        yield from said
        while True:
            yield said[-1]

    def hang_up(self) -> None:
        """On all that hold something."""
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def count(self, verb: str) -> int:
        return self.heard.count(verb)

    def stop(self) -> None:
        self.hang_up()
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()


def granted(ttl_ms: int, *more: Any) -> Answer:
    word = {"grant": "h1", "name": "it", "slot": 0, "fencing": 1, "ttl_ms": ttl_ms, "waited_ms": 0}
    return 200, [{"granted": word}, *more]


def renewed(ttl_ms: int) -> Answer:
    return 200, {"ttl_ms": ttl_ms}


def refused(status: int, kind: str) -> Answer:
    return status, {"error": kind, "message": f"it is {kind}"}


def after(seconds: float, answer: Answer) -> Callable[[], Answer]:
    def wait() -> Answer:
        time.sleep(seconds)
        return answer

    return wait


class Refusals(unittest.TestCase):
    def agent(self, **verbs: list[Any]) -> tuple[Scripted, peerlock.Agent]:
        script = Scripted(**verbs)
        self.addCleanup(script.stop)
        return script, peerlock.Agent(script.path)

    def test_after_a_long_wait_the_first_renewal_has_its_time(self) -> None:
        _, agent = self.agent(hold=[after(3.1, granted(3000))], renew=[after(0.3, renewed(30000))])
        with agent.lock("it", ttl=30.0) as grant:
            self.assertFalse(grant.lost.is_set(), grant.why)

    def test_the_first_renewal_is_asked_for_again(self) -> None:
        renew = [refused(503, "busy"), renewed(30000)]
        script, agent = self.agent(hold=[after(3.1, granted(3000))], renew=renew)
        with agent.lock("it", ttl=30.0):
            self.assertEqual(script.count("renew"), 2)

    def test_who_is_refused_for_other_reasons_than_the_slot_asks_again(self) -> None:
        renew = [refused(503, "busy"), refused(503, "unavailable"), renewed(30000)]
        script, agent = self.agent(hold=[granted(9000)], renew=renew)
        with agent.lock("it") as grant:
            eventually(lambda: script.count("renew") == 3 or grant.lost.is_set(), "it is renewed")
            self.assertFalse(grant.lost.is_set(), grant.why)

    def test_a_next_agent_that_is_busy_is_asked_again(self) -> None:
        resume = [refused(503, "busy"), refused(503, "stopped"), granted(30000)]
        script, agent = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)
        with agent.lock("it") as grant:
            eventually(lambda: script.streams, "it is held")
            script.hang_up()
            eventually(lambda: script.count("resume") == 3 or grant.lost.is_set(), "it is taken up again")
            self.assertFalse(grant.lost.wait(0.2), grant.why)

    def test_a_next_agent_that_has_not_the_slot_is_believed(self) -> None:
        resume = [(200, [{"failed": {"error": "lost", "message": "it is gone"}}])]
        script, agent = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)
        with self.assertRaises(peerlock.Lost):
            with agent.lock("it") as grant:
                eventually(lambda: script.streams, "it is held")
                script.hang_up()
                self.assertTrue(grant.lost.wait(PATIENCE))
        self.assertEqual(script.count("resume"), 1)

    def test_an_odd_answer_to_a_renewal_is_no_silence(self) -> None:
        _, agent = self.agent(hold=[granted(3000)], renew=[(200, {})])
        hold = agent.lock("it", ttl=3.0)
        self.assertTrue(hold.acquire().lost.wait(PATIENCE))
        hold.release()

    def test_who_has_lost_its_agent_stops_before_others_come_in(self) -> None:
        _, agent = self.agent(hold=[granted(20000)], renew=[renewed(20000)])
        asked = peerlock.visit.now()
        hold = agent.lock("it", ttl=20.0)
        grant = hold.acquire()
        self.assertLess(grant._stop, asked + 20.0 - 3.0, "a fifth of the lease is the time to stop in")
        hold.release()

    def test_what_comes_late_for_one_use_does_not_touch_the_next(self) -> None:
        answered = threading.Event()

        def late() -> Answer:
            answered.wait(PATIENCE)
            return refused(410, "lost")

        heard: list[peerlock.Grant] = []
        script, agent = self.agent(hold=[granted(6000), granted(30000)], renew=[late, renewed(30000)])
        hold = agent.lock("it", ttl=6.0, on_lost=heard.append)
        hold.acquire()
        eventually(lambda: script.count("renew") == 1, "it is being renewed")
        hold.release()
        hold.acquire()
        answered.set()
        time.sleep(0.3)
        self.assertEqual(heard, [])
        hold.release()

    def test_who_fails_when_it_is_told_is_heard(self) -> None:
        lost = {"lost": {"why": {"error": "revoked", "message": "somebody asks for it"}}}
        _, agent = self.agent(hold=[granted(30000, lost)], renew=[renewed(30000)])
        heard: list[Any] = []

        def fail(_: peerlock.Grant) -> None:
            raise ZeroDivisionError

        with mock.patch("threading.excepthook", heard.append):
            hold = agent.lock("it", on_lost=fail)
            hold.acquire()
            eventually(lambda: heard, "it is told")
            hold.release()
        self.assertEqual([args.exc_type for args in heard], [ZeroDivisionError])

    def test_who_is_interrupted_as_it_enters_holds_nothing(self) -> None:
        script, agent = self.agent(hold=[granted(30000)], renew=[renewed(30000)])
        start, started = threading.Thread.start, []

        def interrupted(thread: threading.Thread) -> None:
            start(thread)
            if threading.current_thread() is not entering:
                return  # The server has threads, too.
            started.append(thread)
            if len(started) == 2:
                time.sleep(0.2)  # Until it reads.
                raise KeyboardInterrupt

        ended = threading.Event()

        def enter() -> None:
            with mock.patch.object(threading.Thread, "start", interrupted):
                with contextlib.suppress(KeyboardInterrupt):
                    agent.lock("it").acquire()
            ended.set()

        entering = threading.Thread(target=enter, daemon=True)
        entering.start()
        self.assertTrue(ended.wait(PATIENCE), "it hangs")
        eventually(lambda: not any(thread.is_alive() for thread in started), "nothing of it is left")
        self.assertEqual(script.count("hold"), 1)

    def test_a_wait_that_is_given_up_as_it_begins_asks_nothing(self) -> None:
        script, agent = self.agent(hold=[granted(30000)])
        hold = agent.lock("it")
        allow = peerlock.visit.Visit._allow

        def given_up(visit: Any, end: Optional[float]) -> None:
            hold.release()
            allow(visit, end)

        with mock.patch.object(peerlock.visit.Visit, "_allow", given_up):
            with self.assertRaises(peerlock.Failed) as ended:
                hold.acquire()
        self.assertEqual((ended.exception.kind, script.count("hold")), ("withdrawn", 0))

    def test_who_finds_the_agent_busy_with_others_waits_for_it(self) -> None:
        with tempfile.TemporaryDirectory(prefix="peerlock-python-") as folder:
            path = os.path.join(folder, "agent.sock")
            with socket.socket(socket.AF_UNIX) as crowded, contextlib.ExitStack() as others:
                crowded.bind(path)
                crowded.listen(0)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        other = others.enter_context(socket.socket(socket.AF_UNIX))
                        other.setblocking(False)
                        other.connect(path)
                threading.Timer(0.3, lambda: crowded.accept()[0].close()).start()
                connection = transport.Transport(path, None).connect(PATIENCE)
                connection.close()
                with self.assertRaises(peerlock.Unreachable):
                    transport.Transport(path, None).connect(0.1)
                    transport.Transport(path, None).connect(0.1)

    def test_unknown_lines_and_fields_are_ignored(self) -> None:
        unknown = [{"from_the_future": {"a": 1}}, ["not", "even", "an", "object"]]
        hold = (200, [*unknown, {"waiting": {"ahead": 0, "new": 1}, "new": {}}, *granted(30000)[1], *unknown])
        script, agent = self.agent(hold=[hold], renew=[(200, {"ttl_ms": 30000, "new": True})])
        with agent.lock("it") as grant:
            eventually(lambda: script.streams, "it is held")
            self.assertFalse(grant.lost.wait(0.3), grant.why)
        self.assertEqual(script.count("resume"), 0)

    def test_wait_goes_on_when_the_connection_ends(self) -> None:
        place = (200, [{"waiting": {"ahead": 1}}])
        script, agent = self.agent(hold=[place, granted(30000)], renew=[renewed(30000)])
        taken = threading.Thread(target=lambda: eventually(lambda: script.streams, "it waits") or script.hang_up())
        taken.start()
        with agent.lock("it", wait=PATIENCE):
            self.assertEqual(script.count("hold"), 2)
        taken.join()

    def test_wait_that_is_over_while_no_agent_is_there_is_not_acquired(self) -> None:
        script, agent = self.agent(hold=[(200, [{"waiting": {"ahead": 1}}])])

        def end() -> None:
            eventually(lambda: script.streams, "it waits")
            os.unlink(script.path)
            script.hang_up()

        ended = threading.Thread(target=end)
        ended.start()
        self.assertRaises(peerlock.NotAcquired, agent.lock("it", wait=1.0).acquire)
        ended.join()
        open(script.path, "w").close()

    def test_missing_keep_alive_lines_end_a_connection(self) -> None:
        alive = {"alive": {"every_ms": 50}}
        resume = [granted(30000, alive), granted(30000)]
        script, agent = self.agent(hold=[granted(30000, alive)], renew=[renewed(30000)], resume=resume)
        with agent.lock("it") as grant:
            eventually(lambda: script.count("resume") == 2 or grant.lost.is_set(), "it is taken up again")
            self.assertFalse(grant.lost.wait(0.3), grant.why)
            self.assertEqual(script.count("resume"), 2)

    def test_aio_leaving_does_not_block_the_event_loop(self) -> None:
        ran, ended, seen = threading.Event(), threading.Event(), []

        def resume() -> Answer:
            ended.wait(PATIENCE)
            return refused(503, "stopped")

        def release() -> Answer:
            seen.append(ran.wait(5.0))
            return 200, {}

        self.addCleanup(ended.set)
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=[resume], release=[release])

        async def other() -> None:
            while script.count("release") == 0:
                await asyncio.sleep(0.01)
            ran.set()

        async def story() -> None:
            async with peerlock.aio.Agent(script.path).lock("it"):
                script.hang_up()
                while script.count("resume") == 0:
                    await asyncio.sleep(0.01)
                running = asyncio.ensure_future(other())
                await asyncio.sleep(0)
            await running

        asyncio.run(story())
        self.assertEqual(seen, [True], "other tasks run while the slot is given back")

    def test_aio_a_late_word_of_one_use_does_not_touch_the_next(self) -> None:
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)])

        async def story() -> None:
            hold = peerlock.aio.Agent(script.path).lock("it")
            async with hold as first:
                pass
            async with hold:
                hold._told_lost(first)
                await asyncio.sleep(0.1)

        asyncio.run(story())

    def test_aio_lost_while_the_loop_was_busy(self) -> None:
        lost = {"lost": {"why": {"error": "revoked", "message": "somebody asks for it"}}}
        script, _ = self.agent(hold=[granted(30000, lost)], renew=[renewed(30000)])

        async def enter() -> None:
            async with peerlock.aio.Agent(script.path).lock("it"):
                await asyncio.sleep(3.0)
                self.fail("it goes on without its slot")

        async def story() -> None:
            entering = asyncio.ensure_future(enter())
            await asyncio.sleep(0)
            eventually(lambda: script.streams, "it is granted")
            time.sleep(0.5)
            await entering

        with self.assertRaises(peerlock.Lost):
            asyncio.run(story())

    def _lost_while_inside(self, script: Scripted, on_lost: Optional[Callable[[peerlock.Grant], None]]) -> Any:
        async def inside() -> None:
            async with peerlock.aio.Agent(script.path).lock("it", on_lost=on_lost):
                script.hang_up()
                await asyncio.sleep(3.0)
                self.fail("it goes on without its slot")

        return inside()

    def test_aio_whatever_is_raised_by_who_is_told(self) -> None:
        resume = [(200, [{"failed": {"error": "lost", "message": "it is gone"}}])]
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)

        def fail(_: peerlock.Grant) -> None:
            raise ZeroDivisionError

        async def story() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
            await self._lost_while_inside(script, fail)

        with self.assertRaises(peerlock.Lost):
            asyncio.run(story())

    @unittest.skipUnless(hasattr(asyncio, "timeout"), "Python 3.11 and later")
    def test_aio_a_time_limit_around_it_still_ends_as_one(self) -> None:
        resume = [(200, [{"failed": {"error": "lost", "message": "it is gone"}}])]
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)

        async def story() -> None:
            async with asyncio.timeout(2.0):
                with self.assertRaises(peerlock.Lost):
                    await self._lost_while_inside(script, None)
                await asyncio.sleep(PATIENCE)

        with self.assertRaises(TimeoutError):
            asyncio.run(story())


class Trouble(WithAgent):
    def test_who_was_frozen_past_its_end_is_told_by_the_first_look(self) -> None:
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        still = ctypes.PyDLL(None).poll
        hold = self.agent.lock("it", ttl=1.0)
        grant = hold.acquire()
        # No other thread runs meanwhile, nor before what comes after it.
        sys.setswitchinterval(100.0)
        still(None, 0, 1500)
        self.assertRaises(peerlock.Lost, grant.check)
        sys.setswitchinterval(interval)
        hold.release()
        with self.assertRaises(peerlock.Lost):
            with self.agent.lock("other", ttl=1.0):
                sys.setswitchinterval(100.0)
                still(None, 0, 1500)

    def test_a_frozen_agent_keeps_nobody_who_does_not_wait(self) -> None:
        self.running.process.send_signal(signal.SIGSTOP)
        ended: list[BaseException] = []

        def ask() -> None:
            try:
                self.agent.lock("it", wait=0).acquire()
            except peerlock.Error as error:
                ended.append(error)

        with mock.patch("peerlock.visit.LATE", 0.2):
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            thread.join(5.0)
        self.assertEqual([type(error) for error in ended], [peerlock.Unreachable])
        self.assertIn("doctor", str(ended[0]))

    def test_without_a_thread_nothing_is_held(self) -> None:
        hold = self.agent.lock("it")
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            self.assertRaises(RuntimeError, hold.acquire)
        with self.agent.lock("it", wait=5):
            pass

    def test_a_child_that_leaves_takes_nothing_from_its_parent(self) -> None:
        hold = self.agent.lock("it")
        grant = hold.acquire()
        child = os.fork()
        if child == 0:
            try:
                hold.release()
                os._exit(0)
            finally:
                os._exit(1)
        end = time.monotonic() + 10.0
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                self.fail("the child hangs")
            time.sleep(0.02)
        self.assertEqual(ended, (child, 0))
        self.assertFalse(grant.lost.wait(0.5), grant.why)
        self.assertRaises(peerlock.NotAcquired, self.agent.lock("it", wait=0).acquire)
        hold.release()

    def test_a_wait_that_is_given_up_before_it_began_is_none(self) -> None:
        given_up = threading.Event()
        connect = transport.Transport.connect

        def late(self: transport.Transport, timeout: Optional[float]) -> Any:
            given_up.wait(PATIENCE)
            return connect(self, timeout)

        async def story() -> None:
            with mock.patch.object(transport.Transport, "connect", late):
                waiting = asyncio.ensure_future(self._enter())
                await asyncio.sleep(0.05)
                waiting.cancel()
                await asyncio.wait([waiting])

        with self.agent.lock("it"):
            before = threading.active_count()
            asyncio.run(story())
            given_up.set()
            eventually(lambda: threading.active_count() <= before, "nobody waits")
            self.assertEqual(self.agent.show("it")["queue"], [])
        with self.agent.lock("it", wait=5):
            pass

    async def _enter(self) -> None:
        async with self.aio.lock("it"):
            self.fail("it is held by another")

    def test_names_that_cannot_be(self) -> None:
        for name in ["", " a", "a\n", "ä" * 200]:
            with self.assertRaises(peerlock.Failed) as refused:
                self.agent.lock(name, wait=0).acquire()
            self.assertEqual(refused.exception.kind, "bad_name", name)
            with self.assertRaises(peerlock.Failed) as refused:
                self.agent.show(name)
            self.assertEqual(refused.exception.kind, "bad_name", name)
        for name in ["Köln/1", ".", "..", "a b?c#d%2F", "日本"]:
            with self.agent.lock(name, wait=0) as grant:
                self.assertEqual(grant.name, name)
                self.assertEqual(self.agent.show(name)["name"], name)

    def test_a_token_as_it_is_read_from_its_file(self) -> None:
        with peerlock.Agent(self.running.port(), token=self.running.token() + "\n").lock("it"):
            pass


class Proxy:
    """Forwards TCP connections to an agent, and can end one side of them."""

    def __init__(self, address: str) -> None:
        self.behind = address.rsplit(":", 1)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.open = contextlib.ExitStack()
        self.far: list[socket.socket] = []
        self.is_deaf = False
        self.open.callback(self._end)
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self.open.enter_context(self.listener.accept()[0])
                far = self.open.enter_context(socket.create_connection((self.behind[0], int(self.behind[1]))))
                self.far.append(far)
                for source, sink in [(near, far), (far, near)]:
                    self.threads.append(threading.Thread(target=self._copy, args=(source, sink, near)))
                    self.threads[-1].start()

    def _copy(self, source: socket.socket, sink: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                sink.sendall(data)
            if not self.is_deaf or source is near:
                sink.shutdown(socket.SHUT_RDWR)

    def end_agents_side(self) -> None:
        """The client's side stays open, and silent."""
        self.is_deaf = True
        self._end()

    def _end(self) -> None:
        for far in self.far:
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
        self.far.clear()

    def stop(self) -> None:
        self.is_deaf = False
        self.listener.shutdown(socket.SHUT_RDWR)
        self.open.close()
        for thread in self.threads:
            thread.join(PATIENCE)
        self.listener.close()


class OverTcp(WithAgent):
    def setUp(self) -> None:
        super().setUp()
        self.proxy = Proxy(self.running.port())
        self.addCleanup(self.proxy.stop)
        self.remote = peerlock.Agent(self.proxy.address, token=self.running.token())

    def test_end_of_one_side_frees_nothing(self) -> None:
        with self.remote.lock("it") as grant:
            self.proxy.end_agents_side()
            eventually(lambda: self.running.connections() == 0, "the agent has seen the end")
            self.assertRaises(peerlock.NotAcquired, self.agent.lock("it", wait=0).acquire)
            self.assertFalse(grant.lost.is_set(), grant.why)

    def test_connection_that_ends_is_replaced(self) -> None:
        with self.remote.lock("it") as grant:
            for far in self.proxy.far[:]:
                far.shutdown(socket.SHUT_RDWR)
            self.assertFalse(grant.lost.wait(1.0), grant.why)
            self.assertRaises(peerlock.NotAcquired, self.agent.lock("it", wait=0).acquire)
        with self.agent.lock("it", wait=0) as next:
            self.assertEqual(next.fencing, grant.fencing + 1)

    def test_leaving_gives_back(self) -> None:
        for _ in range(3):
            with self.remote.lock("it", wait=0):
                pass
            with self.agent.lock("it", wait=0):
                pass


class Addresses(unittest.TestCase):
    def test_token_of_an_agent_at_a_port_is_taken_from_the_environment(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix="token") as file:
            file.write("from-the-file\n")
            file.flush()
            both = {"PEERLOCK_API_TOKEN": "from-itself", "PEERLOCK_API_TOKEN_FILE": file.name}
            for named, variables, token in [
                ("db1:7401", both, "from-itself"),
                ("db1:7401", {"PEERLOCK_API_TOKEN_FILE": file.name}, "from-the-file"),
                ("db1:7401", {}, None),
                ("/run/agent.sock", both, None),
            ]:
                with mock.patch.dict(os.environ, {"PEERLOCK_AGENT": named, **variables}):
                    self.assertEqual(transport.Transport(None, None)._token, token, (named, variables))
                    self.assertIsNone(transport.Transport("other:1", None)._token, "it is not for others")
        with mock.patch.dict(os.environ, {"PEERLOCK_AGENT": "db1:1", "PEERLOCK_API_TOKEN_FILE": "/nonexistent"}):
            self.assertRaises(peerlock.Unreachable, transport.Transport, None, None)

    def test_what_is_no_address_is_said(self) -> None:
        for endpoint in ["nowhere", "host:port", "host:99999", ":80", "unix:"]:
            with self.assertRaises(peerlock.Unreachable) as refused:
                peerlock.Agent(endpoint).lock("it").acquire()
            self.assertIn("host:port", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
