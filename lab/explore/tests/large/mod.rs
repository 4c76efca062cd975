//! Worlds that are too large for every day. The documents have them in tables, a row of which begins with a world as it
//! is typed and the number of its states.
//!
//! `PEERLOCK_LARGE=1 cargo test -p peerlock-explore large -- --nocapture --test-threads 1` explores them all, which
//! takes half an hour and some gigabytes. Every day only the smallest are, and the others must be worlds that can be
//! typed.

/// The largest that is explored every day.
const EVERY_DAY: usize = 60_000;

/// Whether a world with so many states is to be explored now.
pub fn is_for_now(states: usize) -> bool {
    states <= EVERY_DAY || std::env::var_os("PEERLOCK_LARGE").is_some()
}

/// The worlds of a page have as many states as it says. `states` explores one; `read` only reads it.
pub fn worlds_are_as_documented<W>(page: &str, read: impl Fn(&str) -> W, states: impl Fn(&str) -> usize) {
    let worlds: Vec<(&str, usize)> = page.lines().filter_map(row).collect();
    assert!(!worlds.is_empty(), "the page has no table of worlds");
    for (world, documented) in worlds {
        read(world);
        if is_for_now(documented) {
            assert_eq!(states(world), documented, "states of {world}, and what the page says");
        }
    }
}

/// ``| `peers=3 slots=1` | 586,066 | …``
fn row(line: &str) -> Option<(&str, usize)> {
    let (world, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
    let (states, _) = rest.split_once(" |")?;
    Some((world, states.replace(',', "").parse().ok()?))
}
