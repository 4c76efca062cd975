//! The default label of a request.

use std::ffi::OsString;

use nix::unistd::{User, geteuid, gethostname};
use peerlock_types::is_hidden;

const LONGEST: usize = 100;

/// Returns user, host and program: `ada@host: rsync`. Omits the arguments, which may contain a password, since all
/// members see the label.
pub fn of(command: &[OsString]) -> String {
    let user = match User::from_uid(geteuid()) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => geteuid().to_string(),
    };
    let host = gethostname().map_or_else(|_| "?".into(), |host| host.to_string_lossy().into_owned());
    shortened(&match command.first() {
        Some(program) => format!("{user}@{host}: {}", program.to_string_lossy()),
        None => format!("{user}@{host}"),
    })
}

fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_one_short_line() {
        for (text, label) in [
            ("ada@host: ls", "ada@host: ls".to_owned()),
            ("a\nb\tc", "a b c".to_owned()),
            (&"ü".repeat(100), "ü".repeat(100)),
            (&"ü".repeat(101), "ü".repeat(100) + "…"),
        ] {
            assert_eq!(shortened(text), label);
        }
        assert!(of(&["sleep".into(), "1".into()]).ends_with(": sleep"));
    }
}
