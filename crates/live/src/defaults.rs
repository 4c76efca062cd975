//! What is left out of a setting that real peers play: runs of seconds, where the simulator's take hours.

use peerlock_base::Span;
use peerlock_catalogue::{Flags, Load, Protocol, Refused, Setting};

/// A setting of these flags for real peers. What the papers have by default would take hours in real time: here it is
/// 32 peers (of protocols with replicas 8 replicas and 24 clients), 10 entries each, or 8 resources and 10 rounds,
/// once.
///
/// # Errors
/// As of [`Setting::try_from`].
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
