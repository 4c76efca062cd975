//! Whether anything of a command's process group is left.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::unistd::Pid;

/// Whether somebody of a group can still do something. Who is dead and waits for a parent to take note cannot, and may
/// wait for ever where nobody does.
pub fn is_alive(group: Pid) -> bool {
    // Anything else than "no such group" is a member, also one of another user, whom we may not signal.
    killpg(group, None) != Err(Errno::ESRCH) && some_run(group, &stats())
}

/// What the kernel says of all processes.
fn stats() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok()).collect()
}

/// Whether some of a group that has members run: as far as we see, or because we see none of them (`hidepid`).
fn some_run(group: Pid, stats: &[String]) -> bool {
    let mut states = stats.iter().filter_map(|stat| member(stat)).filter(|(_, of)| *of == group).peekable();
    states.peek().is_none() || states.any(|(runs, _)| runs)
}

/// Whether a process runs, and in which group it is, from its line in proc(5): state, parent and group follow its name,
/// which may have anything in it.
fn member(stat: &str) -> Option<(bool, Pid)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, group) = (fields.next()?, fields.nth(1)?);
    Some((!matches!(state, "Z" | "X" | "x"), Pid::from_raw(group.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_do_nothing() {
        for (stats, runs) in [
            (&["12 (sh) S 1 34 34 0"][..], true),
            (&["12 (a ) Z 1 2) R 1 34 34 0"], true),
            (&["12 (sh) Z 1 34 34 0"], false),
            (&["12 (sh) X 1 34 34 0"], false),
            (&["12 (sh) Z 1 34 34 0", "13 (sh) D 12 34 34 0"], true),
            (&["12 (sh) Z 1 34 34 0", "13 (sh) R 1 35 34 0", "14 (sh"], false),
            // It has members, and they are hidden from us.
            (&["13 (sh) R 1 35 34 0", ""], true),
        ] {
            let stats: Vec<String> = stats.iter().map(|&stat| stat.to_owned()).collect();
            assert_eq!(some_run(Pid::from_raw(34), &stats), runs, "{stats:?}");
        }
        assert!(is_alive(nix::unistd::getpgrp()));
    }
}
