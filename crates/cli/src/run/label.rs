//! What others see of who waits or is inside.

use std::ffi::OsString;

use nix::unistd::{User, geteuid, gethostname};

const LONGEST: usize = 100;

/// Who, where and what, if it is a command: `ada@host: rsync -a /home backup:`.
pub fn of(command: &[OsString]) -> String {
    let user = match User::from_uid(geteuid()) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => geteuid().to_string(),
    };
    let host = gethostname().map_or_else(|_| "?".into(), |host| host.to_string_lossy().into_owned());
    let command: String = command.iter().map(|word| format!(" {}", word.to_string_lossy())).collect();
    shortened(&if command.is_empty() { format!("{user}@{host}") } else { format!("{user}@{host}:{command}") })
}

/// One line, and not too long.
fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_one_short_line() {
        for (text, label) in [
            ("ada@host: ls", "ada@host: ls".to_owned()),
            ("a\nb\tc", "a b c".to_owned()),
            (&"ü".repeat(100), "ü".repeat(100)),
            (&"ü".repeat(101), "ü".repeat(100) + "…"),
        ] {
            assert_eq!(shortened(text), label);
        }
        assert!(of(&["sleep".into(), "1".into()]).ends_with(": sleep 1"));
    }
}
