//! Runs a setting. Only this module creates state machines by name.

use std::hash::Hash;

use peerlock_protocols::backed::{self, Backable, Ring};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{
    Backed, Bv95, Coordinator, E2e, FairK, FairKLate, NonE2e, Observe, Replicas, Sigma, Strawman, coordinator, e2e,
    fair_k, fair_k_late, non_e2e, sigma, strawman,
};
use peerlock_sim::latency::MatrixError;
use peerlock_sim::{self as sim, Drive, Failure, Ideal, Report, Simulated, Wire};
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
        match &self.load {
            Load::Closed(closed) if self.protocol == Protocol::Custody => Ok(self.custody(closed)?.run(progress)?),
            Load::Closed(closed) if self.protocol == Protocol::Ideal => {
                let experiment = self.experiment(closed)?;
                let (peers, slots) = (experiment.peers, experiment.slots);
                Ok(experiment.run(|latency| Ideal::peers(peers, slots, latency), progress)?)
            }
            _ => Ok(self.drive(Simulated(progress))??),
        }
    }

    /// Passes the setting to `driver`.
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
                let experiment = self.experiment(closed)?;
                match closed.voters {
                    None => self.drive_closed(&experiment, closed.backups, driver),
                    Some(voters) => {
                        let replicas = Replicas::first(voters.quorum);
                        self.drive_replicated(voters.lease, Loop { experiment, replicas, driver })
                    }
                }
            }
            Load::Open(open) => {
                let replicas = Replicas::first(open.voters.quorum);
                self.drive_replicated(open.voters.lease, Clients { open: self.open(open)?, replicas, driver })
            }
            Load::Rounds(rounds) => self.drive_rounds(rounds, Overlay { rounds: self.rounds(rounds)?, driver }),
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

    fn drive_closed<D: Drive>(&self, experiment: &sim::Experiment, backups: Option<Backups>, driver: D) -> D::Output {
        let layout = Layout::printed(experiment.peers as u64, experiment.slots);
        let run = Peers { experiment, backups, driver };
        match self.protocol {
            Protocol::FairK => {
                let config = self.form.of(fair_k::Config::PRINTED, fair_k::Config::REPAIRED);
                run.run(|me| FairK::new(me, &layout, config))
            }
            Protocol::FairKLate => run.run(|me| FairKLate::new(me, &layout, fair_k_late::Config::default())),
            Protocol::Bv95(config) => run.run(|me| Bv95::new(me, &layout, config)),
            _ => unreachable!("{} has no driver among peers", self.protocol),
        }
    }

    fn drive_replicated<R: RunReplicated>(&self, lease: Span, run: R) -> R::Output {
        match self.protocol {
            Protocol::Sigma | Protocol::SigmaOnce => run.run(self.sigma(lease, None)),
            Protocol::Strawman | Protocol::StrawmanRetry => {
                let gives_up = self.protocol == Protocol::Strawman;
                let config = if gives_up { strawman::Config::GIVES_UP } else { strawman::Config::BACKS_OFF };
                let config = strawman::Config { lease, ..config };
                run.run(move |me, replicas: &Replicas| Strawman::new(me, replicas, config))
            }
            Protocol::Coordinator => run.run(self.coordinator(lease)),
            _ => unreachable!("{} has no replicas that clients know", self.protocol),
        }
    }

    fn drive_rounds<R: RunReplicated>(&self, rounds: &Rounds, run: R) -> R::Output {
        let lease = rounds.voters.lease;
        match self.protocol {
            Protocol::Sigma => run.run(self.sigma(lease, rounds.retry)),
            Protocol::Coordinator => run.run(self.coordinator(lease)),
            Protocol::E2e => {
                let config = self.form.of(e2e::Config::PRINTED, e2e::Config::REPAIRED);
                // Ten leases between pings, as by default, but at most the paper's ten minutes: with short leases a run
                // would end before a dead owner is detected. The printed form has no leases.
                let ten_leases = Span::from_nanos(lease.as_nanos().saturating_mul(10));
                let ping = self.form.of(config.ping, config.ping.min(ten_leases));
                let config = e2e::Config { lease, ping, ..config };
                run.run(move |me, replicas: &Replicas| E2e::new(me, replicas, config))
            }
            Protocol::NonE2e => {
                let config = self.form.of(non_e2e::Config::PRINTED, non_e2e::Config::REPAIRED);
                let config = non_e2e::Config { lease, ..config };
                run.run(move |me, replicas: &Replicas| NonE2e::new(me, replicas, config))
            }
            _ => unreachable!("{} does not run on an overlay", self.protocol),
        }
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

struct Peers<'a, D> {
    experiment: &'a sim::Experiment,
    backups: Option<Backups>,
    driver: D,
}

impl<D: Drive> Peers<'_, D> {
    fn run<P: Backable<Message: Wire> + Wire>(self, new: impl Fn(PeerId) -> P + Sync) -> D::Output {
        let ids = || (0..self.experiment.peers as u64).map(PeerId::new);
        let Some(Backups { copies, recovery }) = self.backups else {
            return self.experiment.drive(|_| ids().map(&new).collect(), self.driver);
        };
        let config = backed::Config { backups: copies as usize, recovers: recovery == Recovery::Broadcast };
        let ring = Ring::mixed(ids());
        self.experiment.drive(|_| ids().map(|me| Backed::new(me, &ring, config, &new)).collect(), self.driver)
    }
}

fn servers(protocol: Protocol, closed: &Closed) -> usize {
    let voters = closed.voters.filter(|_| protocol != Protocol::Custody);
    voters.map_or(0, |voters| voters.quorum.replicas() as usize)
}

fn mean_gap(rate: f64) -> Span {
    Span::from_secs_f64(1.0 / rate)
}

trait RunReplicated {
    type Output;

    fn run<P: Observe<Timer: Hash, Message: Wire>>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync) -> Self::Output;
}

struct Loop<D> {
    experiment: sim::Experiment,
    replicas: Replicas,
    driver: D,
}

impl<D: Drive> RunReplicated for Loop<D> {
    type Output = D::Output;

    fn run<P: Observe<Timer: Hash, Message: Wire>>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync) -> D::Output {
        let peers = || (0..self.experiment.peers as u64).map(PeerId::new);
        self.experiment.drive(|_| peers().map(|me| new(me, &self.replicas)).collect(), self.driver)
    }
}

struct Clients<D> {
    open: sim::Open,
    replicas: Replicas,
    driver: D,
}

impl<D: Drive> RunReplicated for Clients<D> {
    type Output = D::Output;

    fn run<P: Observe<Timer: Hash, Message: Wire>>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync) -> D::Output {
        self.open.drive(|me| new(me, &self.replicas), self.driver)
    }
}

struct Overlay<D> {
    rounds: sim::Rounds,
    driver: D,
}

impl<D: Drive> RunReplicated for Overlay<D> {
    type Output = D::Output;

    fn run<P: Observe<Timer: Hash, Message: Wire>>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync) -> D::Output {
        self.rounds.drive(new, self.driver)
    }
}
