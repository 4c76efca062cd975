use std::env;
use std::io::{IsTerminal as _, stdout};
use std::process::{Command, Stdio};

/// Opens a page if a user is likely to see it: unless output is a pipe, in CI, or without a display.
pub fn open(page: &str) {
    let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_there(stdout().is_terminal(), set) {
        // The printed address remains if this fails.
        let command =
            Command::new("xdg-open").arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Ok(mut opener) = command {
            std::thread::spawn(move || opener.wait());
        }
    }
}

fn is_there(is_terminal: bool, set: impl Fn(&str) -> bool) -> bool {
    is_terminal && !set("CI") && (set("DISPLAY") || set("WAYLAND_DISPLAY"))
}

#[cfg(test)]
mod tests {
    use super::is_there;

    #[test]
    fn browser_needs_a_terminal_and_a_display() {
        for (is_terminal, set, opens) in [
            (true, &["DISPLAY"][..], true),
            (true, &["WAYLAND_DISPLAY"], true),
            (true, &["DISPLAY", "SSH_CONNECTION"], true), // X11 forwarding.
            (true, &["SSH_CONNECTION"], false),
            (true, &[], false),
            (true, &["DISPLAY", "CI"], false),
            (false, &["DISPLAY"], false),
        ] {
            assert_eq!(is_there(is_terminal, |name| set.contains(&name)), opens, "{is_terminal} {set:?}");
        }
    }
}
