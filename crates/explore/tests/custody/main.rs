//! Custody in every order of events, in small worlds with an abstract register.

mod case;
mod rules;

use case::case;

/// The case in `PEERLOCK_CASE`, or a small one.
#[test]
fn one_case() {
    let text = std::env::var("PEERLOCK_CASE").unwrap_or("peers=2 slots=1 parties=2 stops=1".into());
    case(&text).holds();
}
