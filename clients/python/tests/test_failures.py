"""Failures: agents that refuse, are slow or silent, and clients that are frozen, forked or cancelled."""

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
    """An agent with scripted answers.

    For each verb the answers are sent in turn, the last one repeatedly. A callable returns the answer, and may wait.
    """

    def __init__(self, **verbs: list[Any]) -> None:
        self.verbs: dict[str, Iterator[Any]] = {verb: self._endless(answers) for verb, answers in verbs.items()}
        self.received: list[str] = []
        self.directory = tempfile.TemporaryDirectory(prefix="peerlock-python-")
        self.path = os.path.join(self.directory.name, "agent.sock")
        self.streams: list[Any] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                verb = self.path.rsplit("/", 1)[1]
                script.received.append(verb)
                answer = next(script.verbs[verb])
                status, body = answer() if callable(answer) else answer
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
    def _endless(answers: list[Any]) -> Iterator[Any]:
        yield from answers
        while True:
            yield answers[-1]

    def hang_up(self) -> None:
        """Ends the connections of all holders."""
        for stream in self.streams:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def count(self, verb: str) -> int:
        return self.received.count(verb)

    def stop(self) -> None:
        self.hang_up()
        self.server.shutdown()
        self.server.server_close()
        self.directory.cleanup()


def granted(ttl_ms: int, *more: Any) -> Answer:
    grant = {"grant": "h1", "name": "it", "slot": 0, "fencing": 1, "ttl_ms": ttl_ms, "waited_ms": 0}
    return 200, [{"granted": grant}, *more]


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

    def test_first_renewal_after_a_long_wait_has_time(self) -> None:
        _, agent = self.agent(hold=[after(3.1, granted(3000))], renew=[after(0.3, renewed(30000))])
        with agent.lock("it", ttl=30.0) as grant:
            self.assertFalse(grant.lost.is_set(), grant.why)

    def test_first_renewal_is_retried(self) -> None:
        renew = [refused(503, "busy"), renewed(30000)]
        script, agent = self.agent(hold=[after(3.1, granted(3000))], renew=renew)
        with agent.lock("it", ttl=30.0):
            self.assertEqual(script.count("renew"), 2)

    def test_renewal_refused_for_other_reasons_is_retried(self) -> None:
        renew = [refused(503, "busy"), refused(503, "unavailable"), renewed(30000)]
        script, agent = self.agent(hold=[granted(9000)], renew=renew)
        with agent.lock("it") as grant:
            eventually(lambda: script.count("renew") == 3 or grant.lost.is_set(), "the third renewal")
            self.assertFalse(grant.lost.is_set(), grant.why)

    def test_resume_at_a_busy_agent_is_retried(self) -> None:
        resume = [refused(503, "busy"), refused(503, "stopped"), granted(30000)]
        script, agent = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)
        with agent.lock("it") as grant:
            eventually(lambda: script.streams, "a holder")
            script.hang_up()
            eventually(lambda: script.count("resume") == 3 or grant.lost.is_set(), "the third attempt to resume")
            self.assertFalse(grant.lost.wait(0.2), grant.why)

    def test_resume_answered_with_lost_is_final(self) -> None:
        resume = [(200, [{"failed": {"error": "lost", "message": "the slot is lost"}}])]
        script, agent = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)
        with self.assertRaises(peerlock.Lost):
            with agent.lock("it") as grant:
                eventually(lambda: script.streams, "a holder")
                script.hang_up()
                self.assertTrue(grant.lost.wait(PATIENCE))
        self.assertEqual(script.count("resume"), 1)

    def test_malformed_answer_to_a_renewal_loses_the_slot(self) -> None:
        _, agent = self.agent(hold=[granted(3000)], renew=[(200, {})])
        hold = agent.lock("it", ttl=3.0)
        self.assertTrue(hold.acquire().lost.wait(PATIENCE))
        hold.release()

    def test_holder_stops_before_its_lease_expires(self) -> None:
        _, agent = self.agent(hold=[granted(20000)], renew=[renewed(20000)])
        asked = peerlock.acquisition.now()
        hold = agent.lock("it", ttl=20.0)
        grant = hold.acquire()
        self.assertLess(grant._stop, asked + 20.0 - 3.0, "a fifth of the lease is left to stop")
        hold.release()

    def test_late_answer_for_one_use_does_not_affect_the_next(self) -> None:
        answered = threading.Event()

        def late() -> Answer:
            answered.wait(PATIENCE)
            return refused(410, "lost")

        received: list[peerlock.Grant] = []
        script, agent = self.agent(hold=[granted(6000), granted(30000)], renew=[late, renewed(30000)])
        hold = agent.lock("it", ttl=6.0, on_lost=received.append)
        hold.acquire()
        eventually(lambda: script.count("renew") == 1, "a pending renewal")
        hold.release()
        hold.acquire()
        answered.set()
        time.sleep(0.3)
        self.assertEqual(received, [])
        hold.release()

    def test_exception_in_on_lost_is_reported(self) -> None:
        lost = {"lost": {"why": {"error": "revoked", "message": "it was revoked"}}}
        _, agent = self.agent(hold=[granted(30000, lost)], renew=[renewed(30000)])
        received: list[Any] = []

        def fail(_: peerlock.Grant) -> None:
            raise ZeroDivisionError

        with mock.patch("threading.excepthook", received.append):
            hold = agent.lock("it", on_lost=fail)
            hold.acquire()
            eventually(lambda: received, "a report")
            hold.release()
        self.assertEqual([args.exc_type for args in received], [ZeroDivisionError])

    def test_interrupted_acquire_holds_nothing(self) -> None:
        script, agent = self.agent(hold=[granted(30000)], renew=[renewed(30000)])
        start, started = threading.Thread.start, []

        def interrupted(thread: threading.Thread) -> None:
            start(thread)
            if threading.current_thread() is not entering:
                return  # A thread of the server.
            started.append(thread)
            if len(started) == 2:
                time.sleep(0.2)  # Until the thread reads.
                raise KeyboardInterrupt

        ended = threading.Event()

        def enter() -> None:
            with mock.patch.object(threading.Thread, "start", interrupted):
                with contextlib.suppress(KeyboardInterrupt):
                    agent.lock("it").acquire()
            ended.set()

        entering = threading.Thread(target=enter, daemon=True)
        entering.start()
        self.assertTrue(ended.wait(PATIENCE), "acquire returns")
        eventually(lambda: not any(thread.is_alive() for thread in started), "its threads to end")
        self.assertEqual(script.count("hold"), 1)

    def test_acquire_released_at_its_start_sends_no_request(self) -> None:
        script, agent = self.agent(hold=[granted(30000)])
        hold = agent.lock("it")
        limit_read = peerlock.acquisition.Acquisition._limit_read

        def given_up(acquisition: Any, end: Optional[float]) -> None:
            hold.release()
            limit_read(acquisition, end)

        with mock.patch.object(peerlock.acquisition.Acquisition, "_limit_read", given_up):
            with self.assertRaises(peerlock.Failed) as ended:
                hold.acquire()
        self.assertEqual((ended.exception.kind, script.count("hold")), ("withdrawn", 0))

    def test_full_backlog_of_the_agent_is_awaited(self) -> None:
        with tempfile.TemporaryDirectory(prefix="peerlock-python-") as directory:
            path = os.path.join(directory, "agent.sock")
            with socket.socket(socket.AF_UNIX) as full, contextlib.ExitStack() as others:
                full.bind(path)
                full.listen(0)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        other = others.enter_context(socket.socket(socket.AF_UNIX))
                        other.setblocking(False)
                        other.connect(path)
                threading.Timer(0.3, lambda: full.accept()[0].close()).start()
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
            eventually(lambda: script.streams, "a holder")
            self.assertFalse(grant.lost.wait(0.3), grant.why)
        self.assertEqual(script.count("resume"), 0)

    def test_wait_continues_when_the_connection_ends(self) -> None:
        place = (200, [{"waiting": {"ahead": 1}}])
        script, agent = self.agent(hold=[place, granted(30000)], renew=[renewed(30000)])
        taken = threading.Thread(target=lambda: eventually(lambda: script.streams, "a waiter") or script.hang_up())
        taken.start()
        with agent.lock("it", wait=PATIENCE):
            self.assertEqual(script.count("hold"), 2)
        taken.join()

    def test_wait_ending_without_an_agent_is_not_acquired(self) -> None:
        script, agent = self.agent(hold=[(200, [{"waiting": {"ahead": 1}}])])

        def end() -> None:
            eventually(lambda: script.streams, "a waiter")
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
            eventually(lambda: script.count("resume") == 2 or grant.lost.is_set(), "the second attempt to resume")
            self.assertFalse(grant.lost.wait(0.3), grant.why)
            self.assertEqual(script.count("resume"), 2)

    def test_aio_leaving_does_not_block_the_event_loop(self) -> None:
        ran, ended, results = threading.Event(), threading.Event(), []

        def resume() -> Answer:
            ended.wait(PATIENCE)
            return refused(503, "stopped")

        def release() -> Answer:
            results.append(ran.wait(5.0))
            return 200, {}

        self.addCleanup(ended.set)
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=[resume], release=[release])

        async def other() -> None:
            while script.count("release") == 0:
                await asyncio.sleep(0.01)
            ran.set()

        async def scenario() -> None:
            async with peerlock.aio.Agent(script.path).lock("it"):
                script.hang_up()
                while script.count("resume") == 0:
                    await asyncio.sleep(0.01)
                running = asyncio.ensure_future(other())
                await asyncio.sleep(0)
            await running

        asyncio.run(scenario())
        self.assertEqual(results, [True], "other tasks run during the release")

    def test_aio_late_report_does_not_affect_the_next_use(self) -> None:
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)])

        async def scenario() -> None:
            hold = peerlock.aio.Agent(script.path).lock("it")
            async with hold as first:
                pass
            async with hold:
                hold._report_loss(first)
                await asyncio.sleep(0.1)

        asyncio.run(scenario())

    def test_aio_loss_while_the_loop_is_busy_is_raised(self) -> None:
        lost = {"lost": {"why": {"error": "revoked", "message": "it was revoked"}}}
        script, _ = self.agent(hold=[granted(30000, lost)], renew=[renewed(30000)])

        async def enter() -> None:
            async with peerlock.aio.Agent(script.path).lock("it"):
                await asyncio.sleep(3.0)
                self.fail("the body continues without its slot")

        async def scenario() -> None:
            entering = asyncio.ensure_future(enter())
            await asyncio.sleep(0)
            eventually(lambda: script.streams, "a grant")
            time.sleep(0.5)
            await entering

        with self.assertRaises(peerlock.Lost):
            asyncio.run(scenario())

    def _lose_while_holding(self, script: Scripted, on_lost: Optional[Callable[[peerlock.Grant], None]]) -> Any:
        async def hold() -> None:
            async with peerlock.aio.Agent(script.path).lock("it", on_lost=on_lost):
                script.hang_up()
                await asyncio.sleep(3.0)
                self.fail("the body continues without its slot")

        return hold()

    def test_aio_exception_in_on_lost_does_not_hide_the_loss(self) -> None:
        resume = [(200, [{"failed": {"error": "lost", "message": "the slot is lost"}}])]
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)

        def fail(_: peerlock.Grant) -> None:
            raise ZeroDivisionError

        async def scenario() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
            await self._lose_while_holding(script, fail)

        with self.assertRaises(peerlock.Lost):
            asyncio.run(scenario())

    @unittest.skipUnless(hasattr(asyncio, "timeout"), "Python 3.11 and later")
    def test_aio_surrounding_timeout_still_applies(self) -> None:
        resume = [(200, [{"failed": {"error": "lost", "message": "the slot is lost"}}])]
        script, _ = self.agent(hold=[granted(30000)], renew=[renewed(30000)], resume=resume)

        async def scenario() -> None:
            async with asyncio.timeout(2.0):
                with self.assertRaises(peerlock.Lost):
                    await self._lose_while_holding(script, None)
                await asyncio.sleep(PATIENCE)

        with self.assertRaises(TimeoutError):
            asyncio.run(scenario())


class Failures(WithAgent):
    def test_first_check_after_a_freeze_finds_the_loss(self) -> None:
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        still = ctypes.PyDLL(None).poll
        hold = self.agent.lock("it", ttl=1.0)
        grant = hold.acquire()
        # No other thread runs during the freeze, nor before the check.
        sys.setswitchinterval(100.0)
        still(None, 0, 1500)
        self.assertRaises(peerlock.Lost, grant.check)
        sys.setswitchinterval(interval)
        hold.release()
        with self.assertRaises(peerlock.Lost):
            with self.agent.lock("other", ttl=1.0):
                sys.setswitchinterval(100.0)
                still(None, 0, 1500)

    def test_wait_zero_at_a_frozen_agent_returns(self) -> None:
        self.running.process.send_signal(signal.SIGSTOP)
        ended: list[BaseException] = []

        def ask() -> None:
            try:
                self.agent.lock("it", wait=0).acquire()
            except peerlock.Error as error:
                ended.append(error)

        with mock.patch("peerlock.acquisition.GRACE_SECONDS", 0.2):
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            thread.join(5.0)
        self.assertEqual([type(error) for error in ended], [peerlock.Unreachable])
        self.assertIn("doctor", str(ended[0]))

    def test_failed_thread_start_holds_nothing(self) -> None:
        hold = self.agent.lock("it")
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")):
            self.assertRaises(RuntimeError, hold.acquire)
        with self.agent.lock("it", wait=5):
            pass

    def test_release_in_a_forked_child_frees_nothing(self) -> None:
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

    def test_wait_cancelled_before_its_start_leaves_nothing(self) -> None:
        given_up = threading.Event()
        connect = transport.Transport.connect

        def late(self: transport.Transport, timeout: Optional[float]) -> Any:
            given_up.wait(PATIENCE)
            return connect(self, timeout)

        async def scenario() -> None:
            with mock.patch.object(transport.Transport, "connect", late):
                waiting = asyncio.ensure_future(self._enter())
                await asyncio.sleep(0.05)
                waiting.cancel()
                await asyncio.wait([waiting])

        with self.agent.lock("it"):
            before = threading.active_count()
            asyncio.run(scenario())
            given_up.set()
            eventually(lambda: threading.active_count() <= before, "its threads to end")
            self.assertEqual(self.agent.show("it")["queue"], [])
        with self.agent.lock("it", wait=5):
            pass

    async def _enter(self) -> None:
        async with self.aio.lock("it"):
            self.fail("the slot is held")

    def test_invalid_names_are_refused(self) -> None:
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

    def test_token_may_end_with_a_newline(self) -> None:
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
        """The client's side stays open and silent."""
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
            eventually(lambda: self.running.connections() == 0, "the end of the agent's connections")
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

    def test_leaving_releases_over_tcp(self) -> None:
        for _ in range(3):
            with self.remote.lock("it", wait=0):
                pass
            with self.agent.lock("it", wait=0):
                pass


class Addresses(unittest.TestCase):
    def test_token_of_a_named_port_is_in_the_environment(self) -> None:
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
                    self.assertIsNone(transport.Transport("other:1", None)._token, "only for the named agent")
        with mock.patch.dict(os.environ, {"PEERLOCK_AGENT": "db1:1", "PEERLOCK_API_TOKEN_FILE": "/nonexistent"}):
            self.assertRaises(peerlock.Unreachable, transport.Transport, None, None)

    def test_invalid_endpoint_is_named(self) -> None:
        for endpoint in ["nowhere", "host:port", "host:99999", ":80", "unix:"]:
            with self.assertRaises(peerlock.Unreachable) as refused:
                peerlock.Agent(endpoint).lock("it").acquire()
            self.assertIn("host:port", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
