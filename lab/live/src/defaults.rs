//! Default settings of real runs, which take seconds.

use peerlock_catalogue::{Flags, Load, Protocol, Refused, Setting};
use peerlock_types::Span;

/// Creates a setting. The defaults are one trial with 32 peers (or 8 replicas and 24 clients) of 10 acquisitions each,
/// or with 8 resources and 10 rounds.
///
/// # Errors
///
/// Returns the errors of [`Setting::try_from`].
pub fn setting(mut flags: Flags) -> Result<Setting, Refused> {
    let load = Setting::try_from(flags.clone())?.load;
    flags.trials.get_or_insert(1);
    match load {
        Load::Closed(closed) => {
            if closed.voters.is_some() && flags.protocol != Some(Protocol::Custody) {
                flags.peers.get_or_insert(24);
                flags.replicas.get_or_insert(8);
            }
            flags.peers.get_or_insert(32);
            flags.entries.get_or_insert(10);
            flags.warm_up.get_or_insert(1);
        }
        Load::Open(_) => {
            flags.replicas.get_or_insert(8);
            flags.settle.get_or_insert(Span::from_secs(20));
            flags.measure.get_or_insert(Span::from_secs(100));
        }
        Load::Rounds(_) => {
            flags.peers.get_or_insert(32);
            flags.resources.get_or_insert(8);
            flags.rounds.get_or_insert(10);
        }
    }
    Setting::try_from(flags)
}
