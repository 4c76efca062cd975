//! Worlds that are too large for every run, from tables in the documents with each world's text and number of states.
//! `PEERLOCK_LARGE=1 cargo test -p peerlock-explore large -- --nocapture --test-threads 1` takes half an hour.

const EVERY_DAY: usize = 60_000;

pub fn is_for_now(states: usize) -> bool {
    states <= EVERY_DAY || std::env::var_os("PEERLOCK_LARGE").is_some()
}

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

/// Parses ``| `peers=3 slots=1` | 586,066 | …``.
fn row(text: &str) -> Option<(&str, usize)> {
    let (world, rest) = text.strip_prefix("| `")?.split_once("` | ")?;
    let (states, _) = rest.split_once(" |")?;
    Some((world, states.replace(',', "").parse().ok()?))
}
