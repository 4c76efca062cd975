//! Real processes under test, observed through /proc.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use crate::dir::{Dir, eventually, line};

pub const UNDER_LEASE: &str = env!("CARGO_BIN_EXE_under-lease");

impl Dir {
    pub fn script(&self, name: &str, lines: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, lines).unwrap();
        path
    }
}

pub fn number(path: &Path) -> Pid {
    Pid::from_raw(line(path).trim().parse().unwrap())
}

/// Returns the fields of `/proc/PID/stat` after the name: state, parent, group, session, …
fn stat(process: Pid) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

pub fn is_gone(process: Pid) -> bool {
    stat(process).is_none_or(|stat| stat[0] == "Z")
}

pub fn is_stopped(process: Pid) -> bool {
    stat(process).is_some_and(|stat| stat[0] == "T")
}

pub fn is_in_front(process: Pid) -> bool {
    stat(process).is_some_and(|stat| stat[2] == stat[5])
}

pub fn parent(process: Pid) -> Pid {
    Pid::from_raw(stat(process).unwrap()[1].parse().unwrap())
}

pub fn until_gone(process: Pid) {
    eventually(&format!("the end of {process}"), || is_gone(process).then_some(()));
}

pub fn until_stopped(process: Pid, stopped: bool) {
    eventually(&format!("{process} stopped: {stopped}"), || (is_stopped(process) == stopped).then_some(()));
}

pub fn children(parent: Pid) -> Vec<Pid> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = parent.to_string();
    all.map(Pid::from_raw).filter(|&process| stat(process).is_some_and(|stat| stat[1] == parent)).collect()
}

pub fn guard(parent: Pid) -> Pid {
    eventually("a guard", || {
        children(parent).into_iter().find(|process| {
            fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.starts_with(b"peerlock-guard"))
        })
    })
}

pub fn send(process: Pid, signal: Signal) {
    kill(process, signal).unwrap();
}

pub struct Ends(pub Pid);

impl Drop for Ends {
    fn drop(&mut self) {
        if !is_gone(self.0) {
            let _gone = kill(self.0, Signal::SIGKILL);
        }
    }
}
