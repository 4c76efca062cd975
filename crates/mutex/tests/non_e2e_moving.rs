//! Non-E2E from seeds, on routes that change: hops die for good, replicas move to other peers and have forgotten.

mod moving;

use moving::{FEW_MOVES, Setting, Trouble, everything, play, setting};
use peerlock_base::Span;
use peerlock_mutex::NonE2e;
use peerlock_mutex::non_e2e::Config;

fn holds(trouble: Trouble) {
    moving::holds(trouble, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED));
}

#[test]
fn hops_die_and_replicas_move() {
    holds(Trouble::default());
}

#[test]
fn hops_die_and_replicas_move_and_messages_are_lost_and_clients_crash() {
    holds(everything());
}

/// The checks bite: as printed nearly everybody is left to wait.
#[test]
fn the_printed_form_loses_requests() {
    let setting = setting(Trouble::default());
    let seen = |seed| play(setting, FEW_MOVES, seed, |me, replicas| NonE2e::new(me, replicas, Config::PRINTED));
    assert!((0..10).map(|seed| seen(seed).unserved).sum::<u64>() > 10);
}

/// The bound of 2m − n is not for show: beyond it two get in.
#[test]
fn with_too_many_moves() {
    let setting = Setting { hold: Span::from_secs(2), ..setting(Trouble::default()) };
    let many_moves = (Span::from_millis(300), Span::ZERO);
    let seen = |seed| play(setting, many_moves, seed, |me, replicas| NonE2e::new(me, replicas, Config::REPAIRED));
    assert!((0..20).map(|seed| seen(seed).violations).sum::<u64>() > 0);
}
