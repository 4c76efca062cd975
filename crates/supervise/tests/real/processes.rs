//! Commands without a terminal: exit codes, signals, the end of the lease and of the supervisor.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::common::{
    Dir, Ends, UNDER_LEASE, eventually, guard, is_gone, is_stopped, number, send, until_gone, until_stopped,
};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

const LONG: &str = "3600000";
const AGES: &str = "36000000";

fn under_lease(options: [&str; 3], command: &[&str]) -> Command {
    let mut under = Command::new("setsid");
    under.arg(UNDER_LEASE).args(options).args(command);
    under.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    under
}

fn output(options: [&str; 3], command: &[&str]) -> Output {
    under_lease(options, command).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

struct Run {
    process: Child,
    out: BufReader<ChildStdout>,
    _ends: Ends,
}

impl Run {
    fn start(mut command: Command) -> Self {
        let mut process = command.spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let _ends = Ends(Pid::from_raw(process.id().cast_signed()));
        Self { process, out, _ends }
    }

    fn script(options: [&str; 3], script: &Path) -> Self {
        let mut run = Self::start(under_lease(options, &["sh", script.to_str().unwrap()]));
        run.says("ready");
        run
    }

    fn says(&mut self, what: &str) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), what);
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    fn code(mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.process.wait().unwrap().code().unwrap(), out, err)
    }
}

struct Lease {
    path: String,
    ends: Option<File>,
}

impl Lease {
    fn new(dir: &Dir) -> Self {
        let path = dir.path("lease");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        Self { path: path.to_str().unwrap().to_owned(), ends: None }
    }

    fn ends(&mut self, ends: &str) {
        let open = || OpenOptions::new().write(true).open(&self.path).unwrap();
        self.ends.get_or_insert_with(open).write_all(format!("{ends}\n").as_bytes()).unwrap();
    }
}

#[test]
fn exit_code_is_the_commands_own() {
    for code in [0, 1, 2, 64, 75, 76, 126, 127, 128, 255] {
        let script = format!("exit {code}");
        for on_lost in ["term", "kill", "none"] {
            let ended = output([on_lost, "0", AGES], &["sh", "-c", &script]);
            assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(code), ""), "{on_lost}");
        }
    }
    for signal in [1, 6, 9, 11, 13, 14, 15, 64] {
        let ended = output(["term", "0", AGES], &["sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(ended.status.code(), Some(128 + signal));
    }
    // A shell whose child dies of one of these signals ends its script, unless it ignores the signal.
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        let script = format!("kill -{} $$", signal as i32);
        let ended = output(["term", "0", AGES], &["sh", "-c", &script]);
        assert_eq!((ended.status.signal(), ended.status.core_dumped()), (Some(signal as i32), false), "{signal}");
        let deaf = format!("--ignore-signal={}", signal as i32);
        let received = format!("--default-signal={}", signal as i32);
        let arguments = [&deaf, UNDER_LEASE, "term", "0", AGES, "env", &received, "sh", "-c", &script];
        let ended = Command::new("setsid").arg("env").args(arguments).output().unwrap();
        assert_eq!(ended.status.code(), Some(128 + signal as i32), "{signal}");
    }
}

#[test]
fn a_command_that_cannot_be_run_has_the_codes_of_a_shell() {
    let dir = Dir::new();
    let data = dir.script("data", "no program\n");
    let table =
        [("/nowhere/to/be/found", 127), ("no-such-program-anywhere", 127), ("/", 126), (data.to_str().unwrap(), 126)];
    for (program, code) in table {
        let ended = output(["term", "0", AGES], &[program]);
        let notified = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{program}: {notified}");
        assert!(
            notified.starts_with(&format!("peerlock: cannot run {program:?}: ")) && notified.lines().count() == 1,
            "{notified}"
        );
    }
}

#[test]
fn input_output_and_environment_pass_through() {
    let mut run = Run::start({
        let mut command =
            under_lease(["term", "0", AGES], &["sh", "-c", "cat; echo \"$PEERLOCK_NAME $PEERLOCK_FENCING $MINE\" >&2"]);
        command.stdin(Stdio::piped()).env("MINE", "inherited");
        command
    });
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let (mut input, sent) = (run.process.stdin.take().unwrap(), bytes.clone());
    let writer = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let mut came = Vec::new();
    run.out.read_to_end(&mut came).unwrap();
    writer.join().unwrap();
    assert!(came == bytes, "{} of {} bytes", came.len(), bytes.len());
    assert_eq!(run.code(), (0, String::new(), "a name 7 inherited\n".to_owned()));
}

#[test]
fn arguments_arrive_as_they_were_given() {
    let ended = output(["term", "0", AGES], &["printf", "%s|", "a b", "", "--", "-x", "\"'$(ls)\\"]);
    assert_eq!(text(&ended.stdout), "a b||--|-x|\"'$(ls)\\|");
}

#[test]
fn signals_are_forwarded() {
    use Signal::*;
    let signals = [
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGWINCH, SIGURG, SIGIO,
        SIGPWR, SIGCONT,
    ];
    let dir = Dir::new();
    let traps: String = signals.iter().map(|&signal| format!("trap 'echo {signal}' {}\n", signal as i32)).collect();
    let script = dir.script("child", &format!("{traps}echo ready\nwhile :; do sleep 0.01; done\n"));
    let mut run = Run::script(["term", "0", AGES], &script);
    for signal in signals {
        send(run.pid(), signal);
        run.says(signal.as_str());
    }
}

#[test]
fn signals_reach_the_whole_group() {
    let dir = Dir::new();
    let pid = dir.path("pid");
    let lines =
        format!("trap 'echo heard; exit 3' INT\nsh -c 'echo $$ > {}; echo ready; exec sleep 1000'\n", pid.display());
    let run = Run::script(["term", "0", AGES], &dir.script("child", &lines));
    let grandchild = Ends(number(&pid));
    send(run.pid(), Signal::SIGINT);
    let (code, out, _) = run.code();
    assert_eq!((code, out.as_str()), (3, "heard\n"));
    assert!(is_gone(grandchild.0));
}

#[test]
fn ignored_signals_stay_ignored() {
    // Ignored, as with nohup.
    let script = format!("trap '' HUP; exec {UNDER_LEASE} term 0 {AGES} sh -c 'kill -HUP $$ $PPID; exit 3'");
    let ended = Command::new("setsid").args(["sh", "-c", &script]).output().unwrap();
    assert_eq!(ended.status.code(), Some(3));
    // If SIGCHLD were ignored, the exit status of children would be lost.
    let arguments = ["env", "--ignore-signal=CHLD", UNDER_LEASE, "term", "0", AGES, "sh", "-c", "exit 3"];
    let ended = Command::new("setsid").args(arguments).output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{}", text(&ended.stderr));
}

#[test]
fn a_command_is_asked_to_end_before_the_lease_does() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let script = dir.script("child", "trap 'echo cleaning; exit 0' TERM\necho ready\nwhile :; do sleep 0.01; done\n");
    let run = Run::script(["term", LONG, &lease.path], &script);
    lease.ends(LONG);
    let (code, out, err) = run.code();
    assert_eq!((code, out.as_str()), (76, "cleaning\n"));
    assert_eq!(err.lines().filter(|line| line.starts_with("notice")).collect::<Vec<_>>(), ["notice: Asked"]);
}

#[test]
fn command_ignoring_sigterm_is_killed_at_the_end() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let script = dir.script("child", "trap '' TERM\necho ready\nwhile :; do sleep 0.01; done\n");
    let run = Run::script(["term", "300", &lease.path], &script);
    lease.ends("300");
    let (code, _, err) = run.code();
    assert_eq!(code, 76);
    // On a loaded machine the grace may have passed already.
    assert!(["notice: Asked\nnotice: Killed\n", "notice: Killed\n"].contains(&err.as_str()), "{err}");
}

/// A stopped process handles no signals but SIGKILL and SIGCONT.
#[test]
fn a_stopped_command_is_asked_to_end_too() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let pid = dir.path("pid");
    let lines =
        format!("trap 'echo cleaning; exit 0' TERM\necho $$ > {}\necho ready\nwhile :; do :; done\n", pid.display());
    let run = Run::script(["term", LONG, &lease.path], &dir.script("child", &lines));
    send(number(&pid), Signal::SIGSTOP);
    until_stopped(number(&pid), true);
    lease.ends(LONG);
    assert_eq!(run.code().0, 76);
}

#[test]
fn child_processes_have_the_same_grace() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let cleaned = dir.path("cleaned");
    let inner = dir.script(
        "inner",
        &format!(
            "trap 'sleep 0.2; echo yes > {}; exit' TERM\necho ready\nwhile :; do sleep 0.01; done\n",
            cleaned.display()
        ),
    );
    let outer = dir.script("outer", &format!("sh {}\nexit 0\n", inner.display()));
    let run = Run::script(["term", LONG, &lease.path], &outer);
    lease.ends(LONG);
    assert_eq!(run.code().0, 76);
    assert_eq!(std::fs::read_to_string(cleaned).unwrap(), "yes\n", "the supervisor waited for it");
}

#[test]
fn child_processes_are_killed_with_the_command() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let pid = dir.path("pid");
    let inner = dir.script(
        "inner",
        &format!("trap '' TERM\necho $$ > {}\necho ready\nwhile :; do sleep 0.01; done\n", pid.display()),
    );
    let outer = dir.script("outer", &format!("sh {}\nexit 0\n", inner.display()));
    for on_lost in ["term", "kill"] {
        lease.ends = None; // Closes the pipe.
        let run = Run::script([on_lost, "200", &lease.path], &outer);
        let grandchild = Ends(number(&pid));
        lease.ends("200");
        assert_eq!(run.code().0, 76, "{on_lost}");
        assert!(is_gone(grandchild.0), "{on_lost}");
        std::fs::remove_file(&pid).unwrap();
    }
}

/// Many killed processes take a moment to exit.
#[test]
fn killed_group_is_dead_when_the_supervisor_exits() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let pids = dir.path("pids");
    let many = format!("for _ in $(seq 200); do sleep 1000 & echo $! >> {}; done\necho ready\nwait\n", pids.display());
    let run = Run::script(["term", "0", &lease.path], &dir.script("many", &many));
    let started: Vec<_> =
        std::fs::read_to_string(&pids).unwrap().lines().map(|pid| Ends(Pid::from_raw(pid.parse().unwrap()))).collect();
    lease.ends("-1");
    let mut process = run.process;
    assert_eq!(process.wait().unwrap().code(), Some(76));
    let alive = started.iter().filter(|process| !is_gone(process.0)).count();
    assert_eq!((started.len(), alive), (200, 0));
}

#[test]
fn kill_policy_sends_no_sigterm() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let script = dir.script("child", "trap 'echo cleaning; exit 0' TERM\necho ready\nwhile :; do sleep 0.01; done\n");
    let run = Run::script(["kill", LONG, &lease.path], &script);
    lease.ends(LONG);
    assert_eq!(run.code(), (76, String::new(), "notice: Killed\n".to_owned()));
}

/// After a freeze, another holder may exist.
#[test]
fn late_supervisor_kills_without_grace() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let script = dir.script("child", "trap 'echo cleaning; exit 0' TERM\necho ready\nwhile :; do sleep 0.01; done\n");
    let run = Run::script(["term", LONG, &lease.path], &script);
    lease.ends("-1");
    let (code, out, _) = run.code();
    assert_eq!((code, out.as_str()), (76, ""));
}

#[test]
fn command_left_running_has_its_own_exit_code() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let script = dir.script("child", "trap 'exit 4' USR1\necho ready\nwhile :; do sleep 0.01; done\n");
    let mut run = Run::script(["none", "0", &lease.path], &script);
    lease.ends("-1");
    let mut notified = BufReader::new(run.process.stderr.take().unwrap());
    let mut line = String::new();
    notified.read_line(&mut line).unwrap();
    assert_eq!(line, "notice: RunsOn\n");
    send(run.pid(), Signal::SIGUSR1);
    assert_eq!(run.process.wait().unwrap().code(), Some(4));
}

#[test]
fn a_renewed_lease_goes_on() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let script = dir.script("child", "echo ready\nsleep 1.5\nexit 5\n");
    let run = Run::script(["term", "0", &lease.path], &script);
    lease.ends(&format!("1000\n{AGES}"));
    assert_eq!(run.code(), (5, String::new(), String::new()));
}

fn family(dir: &Dir) -> PathBuf {
    let (child, grandchild) = (dir.path("child"), dir.path("grandchild"));
    dir.script(
        "family",
        &format!(
            "trap '' TERM HUP\nsh -c 'echo $$ > {}; exec sleep 1000' > /dev/null 2>&1 &\n\
             echo $$ > {}\necho ready\nexec sleep 1000\n",
            grandchild.display(),
            child.display()
        ),
    )
}

#[test]
fn killed_supervisor_takes_the_group_along() {
    let dir = Dir::new();
    let mut run = Run::script(["term", LONG, AGES], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    let guard = Ends(guard(run.pid()));
    send(run.pid(), Signal::SIGKILL);
    assert_eq!(run.process.wait().unwrap().signal(), Some(9));
    until_gone(child.0);
    until_gone(grandchild.0);
    until_gone(guard.0);
}

/// `pkill -9 peerlock` matches the guard, too.
#[test]
fn killed_supervisor_and_guard_take_the_command_along() {
    let dir = Dir::new();
    let run = Run::script(["term", LONG, AGES], &family(&dir));
    let (child, _grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    let guard = guard(run.pid());
    send(guard, Signal::SIGKILL);
    until_gone(guard);
    assert!(!is_gone(child.0));
    send(run.pid(), Signal::SIGKILL);
    until_gone(child.0);
}

#[test]
fn a_guard_that_was_killed_is_replaced() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let run = Run::script(["term", LONG, &lease.path], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    let first = guard(run.pid());
    send(first, Signal::SIGKILL);
    until_gone(first);
    lease.ends(AGES);
    let second = Ends(guard(run.pid()));
    send(run.pid(), Signal::SIGKILL);
    until_gone(child.0);
    until_gone(grandchild.0);
    until_gone(second.0);
}

/// The processes belong to root, as if started by `sudo`.
#[test]
fn guard_waits_for_processes_it_may_not_kill() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        assert!(std::env::var_os("PEERLOCK_CI").is_none(), "not root");
        println!("skipped: only root can start processes of two users");
        return;
    }
    let dir = Dir::new();
    let program = |from: &str, to: &str, mode| {
        std::fs::copy(from, dir.path(to)).unwrap();
        std::fs::set_permissions(dir.path(to), Permissions::from_mode(mode)).unwrap();
        dir.path(to)
    };
    std::fs::set_permissions(dir.path(""), Permissions::from_mode(0o755)).unwrap();
    let (as_root, pid) = (program("/usr/bin/setpriv", "as-root", 0o4755), dir.path("pid"));
    let script = dir.script("script", &format!("echo $$ > {}; echo ready; exec sleep 1000", pid.display()));
    let mut command = Command::new("setsid");
    command.args(["setpriv", "--reuid", "65534", "--clear-groups"]).arg(program(UNDER_LEASE, "under-lease", 0o755));
    command.args(["term", LONG, AGES]).arg(as_root).args(["--reuid", "0", "sh"]).arg(script);
    let mut run = Run::start({
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    });
    run.says("ready");
    let (roots, guard) = (Ends(number(&pid)), Ends(guard(run.pid())));
    send(run.pid(), Signal::SIGKILL);
    run.process.wait().unwrap();
    // Longer than a guard that does not wait takes to exit.
    Command::new("sleep").arg("0.2").status().unwrap();
    assert!(!is_gone(roots.0) && !is_gone(guard.0));
    send(roots.0, Signal::SIGKILL);
    until_gone(guard.0);
}

#[test]
fn nothing_starts_after_the_end_of_the_lease() {
    for on_lost in ["term", "kill", "none"] {
        let dir = Dir::new();
        let file = dir.path("file");
        let ended = output([on_lost, "0", "-1"], &["touch", file.to_str().unwrap()]);
        assert_eq!((ended.status.code(), file.exists()), (Some(76), false), "{on_lost}: {}", text(&ended.stderr));
    }
}

#[test]
fn command_left_running_outlives_the_supervisor() {
    let dir = Dir::new();
    let mut run = Run::script(["none", "0", AGES], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    assert_eq!(crate::common::children(run.pid()), [child.0], "there is no guard");
    send(run.pid(), Signal::SIGKILL);
    run.process.wait().unwrap();
    Command::new("sleep").arg("0.2").status().unwrap();
    assert!(!is_gone(child.0) && !is_gone(grandchild.0));
}

/// The guard kills the command, and the supervisor reports it when it continues.
#[test]
fn frozen_supervisor_does_not_extend_the_command() {
    let dir = Dir::new();
    let run = Run::script(["term", "100", "2000"], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    // Before the script writes anything.
    send(run.pid(), Signal::SIGSTOP);
    until_stopped(run.pid(), true);
    until_gone(child.0);
    until_gone(grandchild.0);
    assert!(is_stopped(run.pid()));
    send(run.pid(), Signal::SIGCONT);
    assert_eq!(run.code().0, 76);
}

#[test]
fn the_guard_does_not_listen_to_signals() {
    let dir = Dir::new();
    let run = Run::script(["term", LONG, AGES], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    let guard = Ends(guard(run.pid()));
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTSTP] {
        send(guard.0, signal);
    }
    send(run.pid(), Signal::SIGKILL);
    until_gone(child.0);
    until_gone(grandchild.0);
    until_gone(guard.0);
}

#[test]
fn dropped_supervision_kills_the_command() {
    let dir = Dir::new();
    let mut lease = Lease::new(&dir);
    let mut run = Run::script(["term", LONG, &lease.path], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    lease.ends("drop");
    until_gone(child.0);
    until_gone(grandchild.0);
    assert!(run.process.try_wait().unwrap().is_none(), "the supervisor is alive");
}

#[test]
fn background_processes_of_a_command_run_on() {
    let ended = output(["term", "0", AGES], &["sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"]);
    let left = Ends(Pid::from_raw(text(&ended.stdout).trim().parse().unwrap()));
    assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(0), "notice: LeftBehind\n"));
    assert!(!is_gone(left.0));
}

/// Without a terminal no shell would continue the supervisor.
#[test]
fn a_command_that_is_stopped_and_continued() {
    let dir = Dir::new();
    let run = Run::script(["term", "0", AGES], &family(&dir));
    let (child, grandchild) = (Ends(number(&dir.path("child"))), Ends(number(&dir.path("grandchild"))));
    for (process, stop) in [(child.0, Signal::SIGSTOP), (run.pid(), Signal::SIGTSTP)] {
        send(process, stop);
        until_stopped(child.0, true);
        assert!(!is_stopped(run.pid()));
        send(run.pid(), Signal::SIGCONT);
        until_stopped(child.0, false);
        until_stopped(grandchild.0, false);
    }
    send(child.0, Signal::SIGKILL);
    assert_eq!(eventually("its end", || is_gone(run.pid()).then_some(137)), run.code().0);
}
