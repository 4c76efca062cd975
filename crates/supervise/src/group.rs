use std::fs;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::unistd::Pid;

/// Returns whether a group has a member that is not a zombie. Zombies are harmless, and may never be reaped.
pub fn is_alive(group: Pid) -> bool {
    // Another error means that a member belongs to another user.
    killpg(group, None) != Err(Errno::ESRCH) && some_run(group, &stats())
}

fn stats() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok()).collect()
}

/// Returns true if no member is visible, as with the mount option `hidepid`.
fn some_run(group: Pid, stats: &[String]) -> bool {
    let mut states = stats.iter().filter_map(|stat| member(stat)).filter(|(_, of)| *of == group).peekable();
    states.peek().is_none() || states.any(|(runs, _)| runs)
}

/// Parses a line of proc(5) into whether the process runs, and its group. The name before these fields may contain
/// anything.
fn member(stat: &str) -> Option<(bool, Pid)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, group) = (fields.next()?, fields.nth(1)?);
    Some((!matches!(state, "Z" | "X" | "x"), Pid::from_raw(group.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_do_not_count_as_alive() {
        for (stats, runs) in [
            (&["12 (sh) S 1 34 34 0"][..], true),
            (&["12 (a ) Z 1 2) R 1 34 34 0"], true),
            (&["12 (sh) Z 1 34 34 0"], false),
            (&["12 (sh) X 1 34 34 0"], false),
            (&["12 (sh) Z 1 34 34 0", "13 (sh) D 12 34 34 0"], true),
            (&["12 (sh) Z 1 34 34 0", "13 (sh) R 1 35 34 0", "14 (sh"], false),
            (&["13 (sh) R 1 35 34 0", ""], true),
        ] {
            let stats: Vec<String> = stats.iter().map(|&stat| stat.to_owned()).collect();
            assert_eq!(some_run(Pid::from_raw(34), &stats), runs, "{stats:?}");
        }
        assert!(is_alive(nix::unistd::getpgrp()));
    }
}
