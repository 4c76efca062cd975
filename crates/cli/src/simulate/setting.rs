//! From options to what is run; options that make no sense together are refused here.

use peerlock_base::Span;
use peerlock_figures::{AnyProtocol, Protocol, Routed, Voting};
use peerlock_mutex::Quorum;
use peerlock_sim::latency::Model;
use peerlock_sim::{Closed, Experiment, Faults, Hold, Open, OverlayKind, Poisson, Rounds};

use super::Options;
use crate::{Error, Result};

/// What is run.
pub enum Setting {
    /// Peers that ask again and again.
    Closed(Protocol, Experiment),
    /// Clients without number; so many votes win.
    Open { protocol: Voting, votes: u32, open: Open, arrival_rate: f64 },
    /// Peers on an overlay.
    Rounds(Routed, Rounds),
}

impl Setting {
    pub fn of(options: &Options) -> Result<Self> {
        let setting = match (options.protocol, options.rounds.overlay) {
            (AnyProtocol::Routed(protocol), overlay) => {
                rounds(options, protocol, overlay.unwrap_or(OverlayKind::Pastry))
            }
            (protocol, Some(overlay)) => {
                let Ok(protocol) = protocol.to_string().parse() else {
                    let known: Vec<String> = Routed::ALL.iter().map(Routed::to_string).collect();
                    let known = known.join(", ");
                    return Err(Error::Usage(format!("{protocol} knows no overlay: leave it out, or use {known}")));
                };
                rounds(options, protocol, overlay)
            }
            (AnyProtocol::Closed(protocol), None) => closed(options, protocol),
            (AnyProtocol::Open(protocol), None) => open(options, protocol),
        }?;
        match options.form {
            Some(form) if !setting.has_forms() => {
                Err(Error::Usage(format!("{} has only one form: leave --form {form} out", options.protocol)))
            }
            _ => Ok(setting),
        }
    }

    /// Whether there is a printed and a mended form to be run.
    pub fn has_forms(&self) -> bool {
        match self {
            Self::Closed(protocol, _) => protocol.has_forms(),
            Self::Open { protocol, .. } => protocol.has_forms(),
            Self::Rounds(protocol, _) => protocol.has_forms(),
        }
    }
}

/// What only peers on an overlay have.
fn refuse_rounds(options: &Options) -> Result<()> {
    let given = &options.rounds;
    refuse(
        options,
        "peers on an overlay",
        &[
            ("resources", given.resources.is_some()),
            ("rounds", given.rounds.is_some()),
            ("round", given.round.is_some()),
            ("requests", given.requests.is_some()),
            ("load", given.load.is_some()),
            ("churn", given.churn.is_some()),
        ],
    )
}

fn rounds(options: &Options, protocol: Routed, overlay: OverlayKind) -> Result<Setting> {
    let (closed, open, given) = (&options.closed, &options.open, &options.rounds);
    refuse(
        options,
        "runs without an overlay",
        &[
            ("slots", closed.slots.is_some()),
            ("think-rate", closed.think_rate.is_some()),
            ("entries", closed.entries.is_some()),
            ("warm-up", closed.warm_up.is_some()),
            ("arrival-rate", open.arrival_rate.is_some()),
            ("measure", open.measure.is_some()),
            ("hold", options.hold.is_some()),
            ("long-share", options.long_share.is_some()),
        ],
    )?;
    let table = Rounds::default();
    let peers = closed.peers.map_or(table.peers, |peers| peers as usize);
    let replicas = open.replicas.unwrap_or(10);
    let votes = votes(replicas, open.votes.unwrap_or(replicas / 2 + 1))?;
    let churn = given.churn.unwrap_or(0) as usize;
    if churn / 2 >= peers {
        return Err(Error::Usage(format!("--churn {churn} leaves none of {peers} peers")));
    }
    let faults = faults(options)?;
    let network = match &options.latency {
        None => table.network.clone(),
        Some(latency) if churn > 0 || faults != Faults::default() => boundless(latency, protocol)?.load(peers)?,
        Some(latency) => latency.load(peers)?,
    };
    Ok(Setting::Rounds(
        protocol,
        Rounds {
            peers,
            overlay,
            resources: given.resources.map_or(table.resources, |resources| resources as usize),
            quorum: Quorum::new(replicas, votes),
            settle: open.settle.unwrap_or(table.settle),
            rounds: given.rounds.map_or(table.rounds, |rounds| rounds as usize),
            round: above_zero("round", given.round.unwrap_or(table.round))?,
            requests: given.requests.map_or(table.requests, |requests| requests as usize),
            load: given.load.unwrap_or(table.load),
            churn,
            network,
            links: options.links,
            faults,
            lease: above_zero("lease", open.lease.unwrap_or(table.lease))?,
            count_violations: open.count_violations,
            trials: options.trials,
            seed: options.seed,
            ..table
        },
    ))
}

fn closed(options: &Options, protocol: Protocol) -> Result<Setting> {
    refuse_rounds(options)?;
    let given = &options.open;
    refuse(
        options,
        "clients without number",
        &[
            ("replicas", given.replicas.is_some()),
            ("votes", given.votes.is_some()),
            ("arrival-rate", given.arrival_rate.is_some()),
            ("settle", given.settle.is_some()),
            ("measure", given.measure.is_some()),
            ("lease", given.lease.is_some()),
            ("replica-life", given.replica_life.is_some()),
            ("loss", given.loss.is_some()),
            ("duplication", given.duplication.is_some()),
            ("client-crash", given.client_crash.is_some()),
            ("count-violations", given.count_violations),
        ],
    )?;
    let think = mean_gap("think rate", options.closed.think_rate.unwrap_or(0.5))?;
    let peers = options.closed.peers.unwrap_or(100) as usize;
    let hold = hold(options)?.unwrap_or(Hold::Constant(Span::from_secs(10)));
    let latency = options.latency.clone().unwrap_or(Model::Constant(Span::from_secs(1)));
    let experiment = Experiment {
        peers,
        servers: 0,
        slots: options.closed.slots.unwrap_or(3),
        workload: Closed { think, hold, entries: options.closed.entries.unwrap_or(2000) },
        network: latency.load(peers)?,
        links: options.links,
        faults: Faults::default(),
        count_violations: false,
        warm_up: options.closed.warm_up.unwrap_or(20),
        trials: options.trials,
        seed: options.seed,
    };
    Ok(Setting::Closed(protocol, experiment))
}

fn open(options: &Options, protocol: Voting) -> Result<Setting> {
    refuse_rounds(options)?;
    let given = &options.closed;
    refuse(
        options,
        "peers that ask again and again",
        &[
            ("peers", given.peers.is_some()),
            ("slots", given.slots.is_some()),
            ("think-rate", given.think_rate.is_some()),
            ("entries", given.entries.is_some()),
            ("warm-up", given.warm_up.is_some()),
        ],
    )?;
    let given = &options.open;
    let replicas = given.replicas.unwrap_or(32);
    let votes = votes(replicas, given.votes.unwrap_or((replicas * 3).div_ceil(4)))?;
    let arrival_rate = given.arrival_rate.unwrap_or(3.0);
    let latency = options.latency.clone().unwrap_or(Model::Uniform { low: Span::ZERO, high: Span::from_millis(200) });
    let open = Open {
        replicas,
        workload: Poisson {
            gap: mean_gap("arrival rate", arrival_rate)?,
            hold: hold(options)?,
            settle: given.settle.unwrap_or(Poisson::SETTLE),
            measure: above_zero("measure", given.measure.unwrap_or(Poisson::MEASURE))?,
        },
        network: boundless(&latency, protocol)?.load(replicas as usize)?,
        links: options.links,
        faults: faults(options)?,
        lease: above_zero("lease", given.lease.unwrap_or(Span::from_secs(10)))?,
        count_violations: given.count_violations,
        trials: options.trials,
        seed: options.seed,
    };
    Ok(Setting::Open { protocol, votes, open, arrival_rate })
}

/// So many of so many replicas.
fn votes(replicas: u32, votes: u32) -> Result<u32> {
    if votes > replicas || 2 * votes <= replicas {
        let least = replicas / 2 + 1;
        return Err(Error::Usage(format!("{votes} votes of {replicas} replicas: it takes from {least} to {replicas}")));
    }
    Ok(votes)
}

fn faults(options: &Options) -> Result<Faults> {
    let given = &options.open;
    Ok(Faults {
        loss: share("loss", given.loss)?,
        duplication: share("duplication", given.duplication)?,
        client_crash: share("client-crash", given.client_crash)?,
        replica_life: given.replica_life.map(|life| above_zero("replica-life", life)).transpose()?,
        ..Faults::default()
    })
}

/// A latency for peers that come and go.
fn boundless(latency: &Model, protocol: impl std::fmt::Display) -> Result<&Model> {
    if latency.is_boundless() {
        return Ok(latency);
    }
    Err(Error::Usage(format!(
        "king and matrix have so many hosts and no more: {protocol} needs constant, uniform or jitter here"
    )))
}

/// An option without an effect is a misunderstanding.
fn refuse(options: &Options, whom: &str, given: &[(&str, bool)]) -> Result<()> {
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Error::Usage(format!("--{name} is for {whom}, not for {}: leave it out", options.protocol)))
        }
    }
}

fn hold(options: &Options) -> Result<Option<Hold>> {
    Ok(Some(match (options.hold, options.long_share) {
        (Some(Hold::TwoPoint { short, long, .. }), Some(long_share)) if (0.0..=1.0).contains(&long_share) => {
            Hold::TwoPoint { short, long, long_share }
        }
        (Some(Hold::TwoPoint { .. }), Some(share)) => {
            return Err(Error::Usage(format!("the share of long stays {share} must be from 0 to 1")));
        }
        (_, Some(_)) => {
            return Err(Error::Usage("--long-share needs a two-point hold, such as --hold two-point:1s/100s".into()));
        }
        (Some(hold), None) => hold,
        (None, None) => return Ok(None),
    }))
}

/// The mean time between two, from how many there are in a second.
fn mean_gap(name: &str, rate: f64) -> Result<Span> {
    if rate > 0.0 && rate.is_finite() {
        return Ok(Span::from_secs_f64(1.0 / rate));
    }
    Err(Error::Usage(format!("the {name} {rate} must be a number above 0")))
}

fn share(name: &str, share: Option<f64>) -> Result<f64> {
    match share.unwrap_or(0.0) {
        share if (0.0..=1.0).contains(&share) => Ok(share),
        share => Err(Error::Usage(format!("--{name} {share} must be a share from 0 to 1"))),
    }
}

fn above_zero(name: &str, span: Span) -> Result<Span> {
    if span > Span::ZERO { Ok(span) } else { Err(Error::Usage(format!("--{name} must be more than 0s"))) }
}
