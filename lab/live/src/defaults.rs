//! Default settings of real runs, which take seconds.

use peerlock_catalogue::{Flags, Protocol, Refused, Setting, Workload};
use peerlock_types::Span;

/// Creates a setting. The defaults are one trial with 32 peers (or 8 replicas and 24 clients) of 10 acquisitions each,
/// or with 8 resources and 10 rounds.
///
/// # Errors
///
/// Returns the errors of [`Setting::try_from`].
pub fn setting(mut flags: Flags) -> Result<Setting, Refused> {
    let setting = Setting::try_from(flags.clone())?;
    flags.trials.get_or_insert(1);
    match setting.workload() {
        Workload::Closed => {
            if setting.replicas.is_some() && flags.protocol != Some(Protocol::Custody) {
                flags.peers.get_or_insert(24);
                flags.replicas.get_or_insert(8);
            }
            flags.peers.get_or_insert(32);
            flags.entries.get_or_insert(10);
            flags.warm_up.get_or_insert(1);
        }
        Workload::Open => {
            flags.replicas.get_or_insert(8);
            flags.settle.get_or_insert(Span::from_secs(20));
            flags.measure.get_or_insert(Span::from_secs(100));
        }
        Workload::Rounds => {
            flags.peers.get_or_insert(32);
            flags.resources.get_or_insert(8);
            flags.rounds.get_or_insert(10);
        }
    }
    Setting::try_from(flags)
}
