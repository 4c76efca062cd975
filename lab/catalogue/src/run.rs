//! Runs a setting. Only this module creates state machines by name.

use std::hash::Hash;

use peerlock_protocols::backed::{self, Backable, Ring};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{
    Backed, Bv95, Coordinator, E2e, FairK, FairKLate, NonE2e, Observe, Quorum, Replicas, Sigma, Strawman, coordinator,
    e2e, fair_k, fair_k_late, non_e2e, sigma, strawman,
};
use peerlock_sim::latency::MatrixError;
use peerlock_sim::{self as sim, Drive, Erased, Failure, Ideal, Report, Wire};
use peerlock_types::{PeerId, Span};
use thiserror::Error;

use crate::setting::session;
use crate::{Backups, Closed, Form, Load, Open, Protocol, Recovery, Rounds, Setting, Voters};

#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    #[error("{0}")]
    Broken(#[from] Box<Failure>),
}

/// A callback that receives the cost completed since its last call. Dynamic, so that each protocol is compiled once.
type Progress<'a> = &'a (dyn Fn(u64) + Sync);

impl Setting {
    /// Runs all trials on rayon's threads. `progress` receives the completed part of the [cost](Self::cost).
    ///
    /// # Errors
    ///
    /// Returns an error if the latency file cannot be used, or for a violation unless violations are counted.
    pub fn run(&self, progress: Progress<'_>) -> Result<Report, Error> {
        let per_trial = self.cost_of_a_trial();
        let progress: Progress<'_> = &|trials| progress(trials.saturating_mul(per_trial));
        let report = match &self.load {
            Load::Closed(closed) if self.protocol == Protocol::Custody => self.custody(closed)?.run(progress),
            Load::Closed(closed) if self.protocol == Protocol::Ideal => {
                let experiment = self.experiment(closed)?;
                let (peers, slots) = (experiment.peers, experiment.slots);
                experiment.run(|latency| Ideal::peers(peers, slots, latency), progress)
            }
            Load::Closed(closed) => {
                let experiment = self.experiment(closed)?;
                self.of_loop(closed, Loop { experiment, replicas: self.replicas(), progress })
            }
            Load::Open(open) => {
                let clients = Clients { open: self.open(open)?, replicas: self.replicas(), progress };
                self.with_replicas(open.voters.lease, clients)
            }
            Load::Rounds(rounds) => self.on_overlay(rounds, Overlay { rounds: self.rounds(rounds)?, progress }),
        };
        Ok(report?)
    }

    /// Passes the setting, with peers of an erased protocol, to `driver`.
    ///
    /// # Errors
    ///
    /// Returns an error if the latency file cannot be used.
    ///
    /// # Panics
    ///
    /// Panics for custody and the ideal, which run only in the simulator.
    pub fn drive<D: Drive>(&self, driver: D) -> Result<D::Output, MatrixError> {
        Ok(match &self.load {
            Load::Closed(closed) => {
                let Erased { kinds, new } = self.of_loop(closed, Erase);
                let (experiment, replicas) = (self.experiment(closed)?, self.replicas());
                experiment.drive(kinds, |_| peers(&experiment, &replicas, &new), driver)
            }
            Load::Open(open) => {
                let Erased { kinds, new } = self.with_replicas(open.voters.lease, Erase);
                let replicas = self.replicas();
                self.open(open)?.drive(kinds, |me| new(me, &replicas), driver)
            }
            Load::Rounds(rounds) => {
                let Erased { kinds, new } = self.on_overlay(rounds, Erase);
                self.rounds(rounds)?.drive(kinds, new, driver)
            }
        })
    }

    /// Returns the cost of the run: about the number of acquisitions.
    pub fn cost(&self) -> u64 {
        u64::from(self.trials).saturating_mul(self.cost_of_a_trial())
    }

    fn cost_of_a_trial(&self) -> u64 {
        match &self.load {
            Load::Closed(closed) => u64::from(closed.peers) * u64::from(closed.entries),
            Load::Open(open) => (open.arrival_rate * (open.settle + open.measure).as_secs_f64()).ceil() as u64,
            Load::Rounds(rounds) => {
                let factor = match rounds.load {
                    sim::Load::Whole => 1,
                    sim::Load::PerPeer => u64::from(rounds.peers),
                };
                (u64::from(rounds.rounds) * u64::from(rounds.requests)).saturating_mul(factor)
            }
        }
    }

    /// Returns the number of hosts at the start, which a latency file must have.
    pub fn hosts(&self) -> usize {
        match &self.load {
            Load::Closed(closed) => servers(self.protocol, closed) + closed.peers as usize,
            Load::Open(open) => open.voters.quorum.replicas() as usize,
            Load::Rounds(rounds) => rounds.peers as usize,
        }
    }

    fn experiment(&self, closed: &Closed) -> Result<sim::Experiment, MatrixError> {
        let (peers, servers) = (self.hosts(), servers(self.protocol, closed));
        Ok(sim::Experiment {
            peers,
            servers,
            slots: closed.slots,
            workload: sim::Closed { think: mean_gap(closed.think_rate), hold: closed.hold, entries: closed.entries },
            network: self.latency.load(peers)?,
            links: self.links,
            faults: self.faults,
            count_violations: self.count_violations,
            warm_up: closed.warm_up,
            trials: self.trials,
            seed: self.seed,
        })
    }

    fn custody(&self, closed: &Closed) -> Result<sim::Custody, MatrixError> {
        let Voters { quorum, lease } = closed.voters.expect("checked: custody has voters");
        let peers = closed.peers as usize;
        Ok(sim::Custody {
            peers,
            voters: quorum.replicas(),
            slots: closed.slots,
            session: session(lease).expect("checked: the session length is valid"),
            workload: sim::Closed { think: mean_gap(closed.think_rate), hold: closed.hold, entries: closed.entries },
            network: self.latency.load(peers)?,
            faults: self.faults,
            count_violations: self.count_violations,
            warm_up: closed.warm_up,
            trials: self.trials,
            seed: self.seed,
        })
    }

    fn open(&self, open: &Open) -> Result<sim::Open, MatrixError> {
        Ok(sim::Open {
            replicas: open.voters.quorum.replicas(),
            workload: sim::Poisson {
                gap: mean_gap(open.arrival_rate),
                hold: open.hold,
                settle: open.settle,
                measure: open.measure,
            },
            network: self.latency.load(self.hosts())?,
            links: self.links,
            faults: self.faults,
            lease: open.voters.lease,
            count_violations: self.count_violations,
            trials: self.trials,
            seed: self.seed,
        })
    }

    fn rounds(&self, rounds: &Rounds) -> Result<sim::Rounds, MatrixError> {
        Ok(sim::Rounds {
            peers: rounds.peers as usize,
            overlay: rounds.overlay,
            resources: rounds.resources as usize,
            quorum: rounds.voters.quorum,
            settle: rounds.settle,
            rounds: rounds.rounds as usize,
            round: rounds.round,
            requests: rounds.requests as usize,
            load: rounds.load,
            churn: rounds.churn as usize,
            network: self.latency.load(self.hosts())?,
            links: self.links,
            faults: self.faults,
            lease: rounds.voters.lease,
            count_violations: self.count_violations,
            trials: self.trials,
            seed: self.seed,
            ..sim::Rounds::default()
        })
    }

    fn of_loop<U: Use>(&self, closed: &Closed, user: U) -> U::Output {
        match closed.voters {
            Some(voters) => self.with_replicas(voters.lease, user),
            None => self.among_peers(closed, user),
        }
    }

    fn among_peers<U: Use>(&self, closed: &Closed, user: U) -> U::Output {
        let layout = Layout::printed(closed.peers.into(), closed.slots);
        match self.protocol {
            Protocol::FairK => {
                let config = self.form.of(fair_k::Config::PRINTED, fair_k::Config::REPAIRED);
                with_backups(closed, user, move |me| FairK::new(me, &layout, config))
            }
            Protocol::FairKLate => {
                with_backups(closed, user, move |me| FairKLate::new(me, &layout, fair_k_late::Config::default()))
            }
            Protocol::Bv95(config) => with_backups(closed, user, move |me| Bv95::new(me, &layout, config)),
            _ => unreachable!("{} does not run among peers", self.protocol),
        }
    }

    fn with_replicas<U: Use>(&self, lease: Span, user: U) -> U::Output {
        match self.protocol {
            Protocol::Sigma | Protocol::SigmaOnce => user.peers(self.sigma(lease, None)),
            Protocol::Strawman | Protocol::StrawmanRetry => {
                let gives_up = self.protocol == Protocol::Strawman;
                let config = if gives_up { strawman::Config::GIVES_UP } else { strawman::Config::BACKS_OFF };
                let config = strawman::Config { lease, ..config };
                user.peers(move |me, replicas: &Replicas| Strawman::new(me, replicas, config))
            }
            Protocol::Coordinator => user.peers(self.coordinator(lease)),
            _ => unreachable!("{} has no replicas that clients know", self.protocol),
        }
    }

    fn on_overlay<U: Use>(&self, rounds: &Rounds, user: U) -> U::Output {
        let lease = rounds.voters.lease;
        match self.protocol {
            Protocol::Sigma => user.peers(self.sigma(lease, rounds.retry)),
            Protocol::Coordinator => user.peers(self.coordinator(lease)),
            Protocol::E2e => {
                let config = self.form.of(e2e::Config::PRINTED, e2e::Config::REPAIRED);
                // Ten leases between pings, as by default, but at most the paper's ten minutes: with short leases a run
                // would end before a dead owner is detected. The printed form has no leases.
                let ten_leases = Span::from_nanos(lease.as_nanos().saturating_mul(10));
                let ping = self.form.of(config.ping, config.ping.min(ten_leases));
                let config = e2e::Config { lease, ping, ..config };
                user.peers(move |me, replicas: &Replicas| E2e::new(me, replicas, config))
            }
            Protocol::NonE2e => {
                let config = self.form.of(non_e2e::Config::PRINTED, non_e2e::Config::REPAIRED);
                let config = non_e2e::Config { lease, ..config };
                user.peers(move |me, replicas: &Replicas| NonE2e::new(me, replicas, config))
            }
            _ => unreachable!("{} does not run on an overlay", self.protocol),
        }
    }

    /// Returns those that all clients know; one that is never used among peers.
    fn replicas(&self) -> Replicas {
        Replicas::first(self.load.voters().map_or(Quorum::new(1, 1), |voters| voters.quorum))
    }

    fn sigma(&self, lease: Span, retry: Option<Span>) -> impl Fn(PeerId, &Replicas) -> Sigma + Sync + use<> {
        let config = match self.protocol {
            Protocol::SigmaOnce => sigma::Config { idempotent_requests: true, ..sigma::Config::PRINTED },
            _ => self.form.of(sigma::Config::PRINTED, sigma::Config::REPAIRED),
        };
        let config = sigma::Config { lease, retry: retry.unwrap_or(config.retry), ..config };
        move |me, replicas| Sigma::new(me, replicas, config)
    }

    fn coordinator(&self, lease: Span) -> impl Fn(PeerId, &Replicas) -> Coordinator + Sync + use<> {
        let config = self.form.of(coordinator::Config::PRINTED, coordinator::Config::REPAIRED);
        // Ten pings per lease and four per term, as by default.
        let term = Span::from_nanos((u128::from(lease.as_nanos()) * 4 / 10) as u64); // The lease may be long.
        let config = coordinator::Config { lease, ping: lease / 10, term, ..config };
        move |me, replicas| Coordinator::new(me, replicas, config)
    }
}

impl Form {
    fn of<T>(self, printed: T, repaired: T) -> T {
        match self {
            Self::Printed => printed,
            Self::Repaired => repaired,
        }
    }
}

fn with_backups<P: Backable<Message: Wire> + Wire + 'static, U: Use>(
    closed: &Closed,
    user: U,
    new: impl Fn(PeerId) -> P + Sync + 'static,
) -> U::Output {
    let Some(Backups { copies, recovery }) = closed.backups else { return user.peers(move |me, _| new(me)) };
    let config = backed::Config { backups: copies as usize, recovers: recovery == Recovery::Broadcast };
    let ring = Ring::mixed((0..closed.peers.into()).map(PeerId::new));
    user.peers(move |me, _| Backed::new(me, &ring, config, &new))
}

fn servers(protocol: Protocol, closed: &Closed) -> usize {
    let voters = closed.voters.filter(|_| protocol != Protocol::Custody);
    voters.map_or(0, |voters| voters.quorum.replicas() as usize)
}

fn mean_gap(rate: f64) -> Span {
    Span::from_secs_f64(1.0 / rate)
}

/// What to do with the peers of a protocol, whose type depends on its name.
trait Use {
    type Output;

    fn peers<P>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Self::Output
    where
        P: Observe<Timer: Hash + Wire, Message: Wire> + 'static;
}

struct Erase;

impl Use for Erase {
    type Output = Erased;

    fn peers<P>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Erased
    where
        P: Observe<Timer: Hash + Wire, Message: Wire> + 'static,
    {
        Erased::of(new)
    }
}

type Simulated = Result<Report, Box<Failure>>;

struct Loop<'a> {
    experiment: sim::Experiment,
    replicas: Replicas,
    progress: Progress<'a>,
}

impl Use for Loop<'_> {
    type Output = Simulated;

    fn peers<P>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Simulated
    where
        P: Observe<Timer: Hash + Wire, Message: Wire> + 'static,
    {
        self.experiment.run(|_| peers(&self.experiment, &self.replicas, &new), self.progress)
    }
}

fn peers<P>(experiment: &sim::Experiment, replicas: &Replicas, new: impl Fn(PeerId, &Replicas) -> P) -> Vec<P> {
    (0..experiment.peers as u64).map(|me| new(PeerId::new(me), replicas)).collect()
}

struct Clients<'a> {
    open: sim::Open,
    replicas: Replicas,
    progress: Progress<'a>,
}

impl Use for Clients<'_> {
    type Output = Simulated;

    fn peers<P>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Simulated
    where
        P: Observe<Timer: Hash + Wire, Message: Wire> + 'static,
    {
        self.open.run(|me| new(me, &self.replicas), self.progress)
    }
}

struct Overlay<'a> {
    rounds: sim::Rounds,
    progress: Progress<'a>,
}

impl Use for Overlay<'_> {
    type Output = Simulated;

    fn peers<P>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Simulated
    where
        P: Observe<Timer: Hash + Wire, Message: Wire> + 'static,
    {
        self.rounds.run(new, self.progress)
    }
}
