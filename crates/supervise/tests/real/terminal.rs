//! A command on a terminal: a real shell on a pseudo-terminal, and keys pressed as a person would.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use crate::common::{Ends, Folder, UNDER_LEASE, eventually, is_in_front, number, parent, until_gone, until_stopped};
use nix::pty::openpty;
use nix::unistd::Pid;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A terminal with somebody before it.
struct Terminal {
    keys: File,
    screen: Arc<Mutex<String>>,
    /// What was read of the screen so far.
    read: usize,
    process: Child,
    _ends: Ends,
}

impl Terminal {
    /// A program that leads a session on a terminal of its own.
    fn run(program: &[&str]) -> Self {
        let pty = openpty(None, None).unwrap();
        let clone = |end: &OwnedFd| end.try_clone().unwrap();
        // -c: the terminal on its input becomes the session's own.
        let mut command = Command::new("setsid");
        command.arg("-c").args(program).env("PS1", "prompt> ").env_remove("ENV");
        command.stdin(clone(&pty.slave)).stdout(clone(&pty.slave)).stderr(pty.slave);
        let process = command.spawn().unwrap();
        drop(command); // With our copies of the terminal: its end is the end of the session.
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, seen) = (File::from(clone(&pty.master)), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let _ends = Ends(Pid::from_raw(process.id().cast_signed()));
        Self { keys: pty.master.into(), screen, read: 0, process, _ends }
    }

    /// An interactive shell, at its first prompt.
    fn shell() -> Self {
        let mut terminal = Self::run(&["sh", "-i"]);
        terminal.shows("prompt> ");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text appears after what was waited for before. The terminal also shows what is typed.
    fn shows(&mut self, text: &str) {
        let (screen, from) = (Arc::clone(&self.screen), self.read);
        let found = std::panic::catch_unwind(|| {
            eventually(text, || screen.lock().unwrap()[from..].find(text).map(|at| from + at + text.len()))
        });
        let Ok(read) = found else { panic!("{text:?} is not on the screen:\n{}", self.screen.lock().unwrap()) };
        self.read = read;
    }
}

/// Says whether it is in the foreground, waits for a line, and ends with 9. Its number is in a file.
fn reads(folder: &Folder) -> String {
    let lines = format!(
        "echo $$ > {}\nset -- $(cat /proc/$$/stat)\n[ $5 = $8 ] && echo in-front || echo be-hind\n\
         read line\necho \"got-$line\"\nexit 9\n",
        folder.path("pid").display()
    );
    folder.script("reads", &lines).to_str().unwrap().to_owned()
}

/// Answers Ctrl-C, and does not read from the terminal. Its number is in a file.
fn works(folder: &Folder) -> String {
    let lines = format!(
        "sleep 1000 &\ntrap 'echo caught-int; kill $!; exit 3' INT\necho $$ > {}\necho at-work\nwait\n",
        folder.path("pid").display()
    );
    folder.script("works", &lines).to_str().unwrap().to_owned()
}

fn under_lease(script: &str) -> String {
    format!("{UNDER_LEASE} term 1000 36000000 sh {script}")
}

#[test]
fn a_command_has_the_terminal_and_gives_it_back() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}; echo code=$?\n", under_lease(&reads(&folder))));
    terminal.shows("in-front");
    terminal.press("hello\n");
    terminal.shows("got-hello");
    terminal.shows("code=9");
    // A script is not a shell: it does not fetch the terminal, we must bring it back.
    let script =
        folder.script("script", &format!("{}\nread line\necho \"after-$line\"\n", under_lease(&reads(&folder))));
    terminal.press(&format!("sh {}\n", script.display()));
    terminal.shows("in-front");
    terminal.press("one\n");
    terminal.shows("got-one");
    terminal.press("two\n");
    terminal.shows("after-two");
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}; echo code=$?\n", under_lease(&works(&folder))));
    terminal.shows("at-work");
    terminal.press(CTRL_C);
    terminal.shows("code=3");
    assert_eq!(terminal.screen.lock().unwrap().matches("caught-int").count(), 1);
}

/// A shell ends a script at Ctrl-C if it receives SIGINT and its child dies of SIGINT. The command has the terminal, and
/// so receives Ctrl-C alone.
#[test]
fn ctrl_c_ends_the_script_around_the_command() {
    let folder = Folder::new();
    let sleeps = folder.script("sleeps", "echo st\"\"ep\nexec sleep 1000\n");
    let steps =
        format!("for step in 1 2 3; do {}; done\necho ro\"\"unds-done\n", under_lease(sleeps.to_str().unwrap()));
    let script = folder.script("script", &steps);
    let piped = folder.script("piped", &steps.replace("; done", " | cat; done"));
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

/// As for any command: the script goes on if its child handles SIGINT and exits.
#[test]
fn ctrl_c_that_the_command_handles_ends_no_script() {
    let folder = Folder::new();
    let script = format!("{}\necho code=$?\n", under_lease(&works(&folder)));
    let script = folder.script("script", &script);
    let mut terminal = Terminal::shell();
    terminal.press(&format!("bash {}\n", script.display()));
    terminal.shows("at-work");
    terminal.press(CTRL_C);
    terminal.shows("code=3");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    // Alone, and in a script that must stop with us or the prompt never comes back.
    let script = folder.script("script", &format!("{}\nexit $?\n", under_lease(&reads(&folder))));
    for command in [under_lease(&reads(&folder)), format!("sh {}", script.display())] {
        terminal.press(&format!("{command}\n"));
        terminal.shows("in-front");
        let child = number(&folder.path("pid"));
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
        std::fs::remove_file(folder.path("pid")).unwrap();
    }
}

/// `bg` and `fg`, for a command that asks for nothing.
#[test]
fn a_command_is_in_front_when_its_job_is() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}\n", under_lease(&works(&folder))));
    terminal.shows("at-work");
    let child = number(&folder.path("pid"));
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

/// The other end of the pipe may want the keyboard (`… | less`), so the command has it only when it asks.
#[test]
fn in_a_pipeline_the_command_gets_the_terminal_when_it_wants_it() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{} | cat\n", under_lease(&reads(&folder))));
    terminal.shows("be-hind");
    terminal.press("hello\n");
    terminal.shows("got-hello");
    terminal.shows("prompt> ");
    // And the keys that are meant for all reach it through us.
    std::fs::remove_file(folder.path("pid")).unwrap();
    terminal.press(&format!("{} | (trap '' INT; cat)\n", under_lease(&works(&folder))));
    terminal.shows("at-work");
    let child = number(&folder.path("pid"));
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
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{} &\n", under_lease(&reads(&folder))));
    terminal.shows("be-hind");
    let child = number(&folder.path("pid"));
    // It wants to read, as nobody in the background may: the job is stopped until it is brought to the front.
    until_stopped(parent(child), true);
    terminal.press("echo sh\"\"ell\n");
    terminal.shows("shell");
    terminal.press("fg\n");
    until_stopped(parent(child), false);
    terminal.press("hello\n");
    terminal.shows("got-hello");
}

/// As in `docker run -it` and `ssh -t host peerlock run …`: nobody could ever continue us.
#[test]
fn without_a_shell_ctrl_z_stops_nothing() {
    let folder = Folder::new();
    let mut terminal = Terminal::run(&[UNDER_LEASE, "term", "0", "36000000", "sh", &reads(&folder)]);
    terminal.shows("in-front");
    terminal.press(CTRL_Z);
    terminal.shows("^Z");
    terminal.press("hello\n");
    terminal.shows("got-hello");
    assert_eq!(terminal.process.wait().unwrap().code(), Some(9));
}

/// Ctrl-Z, and never back: the lease ends, and a stopped command is still one that holds the slot.
#[test]
fn a_stopped_job_is_killed_at_its_leases_end() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{UNDER_LEASE} term 0 2000 sh {}\n", reads(&folder)));
    terminal.shows("in-front");
    let child = number(&folder.path("pid"));
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

/// The shell is killed, or the line is cut: the kernel tells the foreground group.
#[test]
fn nobody_survives_the_end_of_the_session() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    terminal.press(&format!("{}\n", under_lease(&reads(&folder))));
    terminal.shows("in-front");
    let child = Ends(number(&folder.path("pid")));
    let us = Ends(parent(child.0));
    terminal.process.kill().unwrap();
    terminal.process.wait().unwrap();
    until_gone(child.0);
    until_gone(us.0);
}

/// Editors switch the echo off. Who is killed cannot switch it on again.
#[test]
fn a_command_that_dies_leaves_the_terminal_as_it_was() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    let mute = folder.script("mute", "stty -echo\necho mu-te\nread line\n");
    terminal.press(&format!("{UNDER_LEASE} kill 0 1000 sh {}; stty -a\n", mute.display()));
    terminal.shows("mu-te");
    terminal.shows(" echo ");
    // Who ends by its own will may want it so: stty is such a command.
    terminal.press(&format!("{UNDER_LEASE} kill 0 36000000 stty -echo; stty -a\n"));
    terminal.shows(" -echo ");
}

/// `stty tostop`: who writes from the background is stopped. We must not be, just because we have something to say.
#[test]
fn what_we_say_does_not_stop_us() {
    let folder = Folder::new();
    let mut terminal = Terminal::shell();
    let script = folder.script("child", "trap 'exit 0' TERM\necho at-work\nwhile :; do sleep 0.01; done\n");
    terminal.press(&format!("stty tostop; {UNDER_LEASE} term 3600000 3601000 sh {}; echo code=$?\n", script.display()));
    terminal.shows("at-work");
    terminal.shows("notice: Asked");
    terminal.shows("code=76");
}
