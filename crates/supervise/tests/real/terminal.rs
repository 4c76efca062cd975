//! Commands on a terminal: a real shell on a pseudo-terminal, with simulated keys.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use crate::common::{Dir, Ends, UNDER_LEASE, eventually, is_in_front, number, parent, until_gone, until_stopped};
use nix::pty::openpty;
use nix::unistd::Pid;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

struct Terminal {
    keys: File,
    screen: Arc<Mutex<String>>,
    read: usize,
    process: Child,
    _ends: Ends,
}

impl Terminal {
    fn run(program: &[&str]) -> Self {
        let pty = openpty(None, None).unwrap();
        let clone = |end: &OwnedFd| end.try_clone().unwrap();
        // With -c, the standard input becomes the controlling terminal.
        let mut command = Command::new("setsid");
        command.arg("-c").args(program).env("PS1", "prompt> ").env_remove("ENV");
        command.stdin(clone(&pty.slave)).stdout(clone(&pty.slave)).stderr(pty.slave);
        let process = command.spawn().unwrap();
        drop(command); // Closes the copies of the terminal.
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, found) = (File::from(clone(&pty.master)), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                found.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let _ends = Ends(Pid::from_raw(process.id().cast_signed()));
        Self { keys: pty.master.into(), screen, read: 0, process, _ends }
    }

    fn shell() -> Self {
        let mut terminal = Self::run(&["sh", "-i"]);
        terminal.shows("prompt> ");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn shows(&mut self, text: &str) {
        let (screen, from) = (Arc::clone(&self.screen), self.read);
        let found = std::panic::catch_unwind(|| {
            eventually(text, || screen.lock().unwrap()[from..].find(text).map(|at| from + at + text.len()))
        });
        let Ok(read) = found else { panic!("{text:?} is not on the screen:\n{}", self.screen.lock().unwrap()) };
        self.read = read;
    }
}

fn reads(dir: &Dir) -> String {
    let lines = format!(
        "echo $$ > {}\nset -- $(cat /proc/$$/stat)\n[ $5 = $8 ] && echo in-front || echo be-hind\n\
         read line\necho \"got-$line\"\nexit 9\n",
        dir.path("pid").display()
    );
    dir.script("reads", &lines).to_str().unwrap().to_owned()
}

/// Returns a command that does not read from the terminal. Its PID is in a file.
fn works(dir: &Dir) -> String {
    let lines = format!(
        "sleep 1000 &\ntrap 'echo caught-int; kill $!; exit 3' INT\necho $$ > {}\necho at-work\nwait\n",
        dir.path("pid").display()
    );
    dir.script("works", &lines).to_str().unwrap().to_owned()
}

fn under_lease(script: &str) -> String {
    format!("{UNDER_LEASE} term 1000 36000000 sh {script}")
}

#[test]
fn a_command_has_the_terminal_and_gives_it_back() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}; echo code=$?\n", under_lease(&reads(&dir))));
    terminal.shows("in-front");
    terminal.press("hello\n");
    terminal.shows("got-hello");
    terminal.shows("code=9");
    // A script does not take the terminal back by itself.
    let script = dir.script("script", &format!("{}\nread line\necho \"after-$line\"\n", under_lease(&reads(&dir))));
    terminal.press(&format!("sh {}\n", script.display()));
    terminal.shows("in-front");
    terminal.press("one\n");
    terminal.shows("got-one");
    terminal.press("two\n");
    terminal.shows("after-two");
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}; echo code=$?\n", under_lease(&works(&dir))));
    terminal.shows("at-work");
    terminal.press(CTRL_C);
    terminal.shows("code=3");
    assert_eq!(terminal.screen.lock().unwrap().matches("caught-int").count(), 1);
}

#[test]
fn ctrl_c_ends_the_script_around_the_command() {
    let dir = Dir::new();
    let sleeps = dir.script("sleeps", "echo st\"\"ep\nexec sleep 1000\n");
    let steps =
        format!("for step in 1 2 3; do {}; done\necho ro\"\"unds-done\n", under_lease(sleeps.to_str().unwrap()));
    let script = dir.script("script", &steps);
    let piped = dir.script("piped", &steps.replace("; done", " | cat; done"));
    for (shell, script) in [("bash", &script), ("sh", &script), ("bash", &piped)] {
        let mut terminal = Terminal::shell();
        terminal.press(&format!("{shell} {}\n", script.display()));
        terminal.shows("step");
        terminal.press(CTRL_C);
        terminal.shows("prompt> ");
        terminal.press("echo co\"\"de=$?\n");
        terminal.shows("code=");
        let screen = terminal.screen.lock().unwrap();
        assert_eq!((screen.matches("step").count(), screen.contains("rounds-done")), (1, false), "{shell}: {screen}");
    }
}

#[test]
fn ctrl_c_that_the_command_handles_ends_no_script() {
    let dir = Dir::new();
    let script = format!("{}\necho code=$?\n", under_lease(&works(&dir)));
    let script = dir.script("script", &script);
    let mut terminal = Terminal::shell();
    terminal.press(&format!("bash {}\n", script.display()));
    terminal.shows("at-work");
    terminal.press(CTRL_C);
    terminal.shows("code=3");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    let script = dir.script("script", &format!("{}\nexit $?\n", under_lease(&reads(&dir))));
    for command in [under_lease(&reads(&dir)), format!("sh {}", script.display())] {
        terminal.press(&format!("{command}\n"));
        terminal.shows("in-front");
        let child = number(&dir.path("pid"));
        terminal.press(CTRL_Z);
        terminal.shows("prompt> ");
        until_stopped(child, true);
        until_stopped(parent(child), true);
        terminal.press("fg\n");
        until_stopped(child, false);
        terminal.press("again\n");
        terminal.shows("got-again");
        terminal.shows("prompt> ");
        terminal.press("echo code=$?\n");
        terminal.shows("code=9");
        std::fs::remove_file(dir.path("pid")).unwrap();
    }
}

#[test]
fn a_command_is_in_front_when_its_job_is() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}\n", under_lease(&works(&dir))));
    terminal.shows("at-work");
    let child = number(&dir.path("pid"));
    assert!(is_in_front(child));
    terminal.press(CTRL_Z);
    terminal.shows("prompt> ");
    terminal.press("bg\n");
    until_stopped(child, false);
    assert!(!is_in_front(child));
    terminal.press("fg\n");
    eventually("it in front", || is_in_front(child).then_some(()));
    terminal.press(CTRL_C);
    terminal.shows("caught-int");
    terminal.shows("prompt> ");
}

/// In a pipeline the command gets the keyboard only when it reads.
#[test]
fn in_a_pipeline_the_command_gets_the_terminal_when_it_wants_it() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{} | cat\n", under_lease(&reads(&dir))));
    terminal.shows("be-hind");
    terminal.press("hello\n");
    terminal.shows("got-hello");
    terminal.shows("prompt> ");
    std::fs::remove_file(dir.path("pid")).unwrap();
    terminal.press(&format!("{} | (trap '' INT; cat)\n", under_lease(&works(&dir))));
    terminal.shows("at-work");
    let child = number(&dir.path("pid"));
    terminal.press(CTRL_Z);
    terminal.shows("prompt> ");
    until_stopped(child, true);
    until_stopped(parent(child), true);
    terminal.press("fg\n");
    until_stopped(child, false);
    terminal.press(CTRL_C);
    terminal.shows("caught-int");
    terminal.shows("prompt> ");
}

#[test]
fn in_the_background_the_terminal_is_not_taken_away() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{} &\n", under_lease(&reads(&dir))));
    terminal.shows("be-hind");
    let child = number(&dir.path("pid"));
    // A background process that reads is stopped until `fg`.
    until_stopped(parent(child), true);
    terminal.press("echo sh\"\"ell\n");
    terminal.shows("shell");
    terminal.press("fg\n");
    until_stopped(parent(child), false);
    terminal.press("hello\n");
    terminal.shows("got-hello");
}

/// As in `docker run -it`: no shell could continue the job.
#[test]
fn without_a_shell_ctrl_z_stops_nothing() {
    let dir = Dir::new();
    let mut terminal = Terminal::run(&[UNDER_LEASE, "term", "0", "36000000", "sh", &reads(&dir)]);
    terminal.shows("in-front");
    terminal.press(CTRL_Z);
    terminal.shows("^Z");
    terminal.press("hello\n");
    terminal.shows("got-hello");
    assert_eq!(terminal.process.wait().unwrap().code(), Some(9));
}

#[test]
fn a_stopped_job_is_killed_at_its_leases_end() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{UNDER_LEASE} term 0 2000 sh {}\n", reads(&dir)));
    terminal.shows("in-front");
    let child = number(&dir.path("pid"));
    let us = parent(child);
    terminal.press(CTRL_Z);
    terminal.shows("prompt> ");
    until_gone(child);
    until_stopped(us, true);
    terminal.press("fg\n");
    terminal.shows("prompt> ");
    terminal.press("echo code=$?\n");
    terminal.shows("code=76");
}

#[test]
fn end_of_the_session_ends_all_processes() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}\n", under_lease(&reads(&dir))));
    terminal.shows("in-front");
    let child = Ends(number(&dir.path("pid")));
    let us = Ends(parent(child.0));
    terminal.process.kill().unwrap();
    terminal.process.wait().unwrap();
    until_gone(child.0);
    until_gone(us.0);
}

/// Editors disable the echo, and cannot restore it when they are killed.
#[test]
fn a_command_that_dies_leaves_the_terminal_as_it_was() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    let mute = dir.script("mute", "stty -echo\necho mu-te\nread line\n");
    terminal.press(&format!("{UNDER_LEASE} kill 0 1000 sh {}; stty -a\n", mute.display()));
    terminal.shows("mu-te");
    terminal.shows(" echo ");
    // A command that exits normally may have intended the change.
    terminal.press(&format!("{UNDER_LEASE} kill 0 36000000 stty -echo; stty -a\n"));
    terminal.shows(" -echo ");
}

/// `stty tostop` stops background processes that write.
#[test]
fn notices_do_not_stop_the_supervisor() {
    let dir = Dir::new();
    let mut terminal = Terminal::shell();
    let script = dir.script("child", "trap 'exit 0' TERM\necho at-work\nwhile :; do sleep 0.01; done\n");
    terminal.press(&format!("stty tostop; {UNDER_LEASE} term 3600000 3601000 sh {}; echo code=$?\n", script.display()));
    terminal.shows("at-work");
    terminal.shows("notice: Asked");
    terminal.shows("code=76");
}
