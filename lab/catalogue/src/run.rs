//! Runs a setting. Only this module creates state machines by name.

use std::hash::Hash;

use peerlock_protocols::backed::{self, Backable, Ring};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{
    Backed, Bv95, Coordinator, E2e, FairK, FairKLate, NonE2e, Observe, Quorum, Replicas, Sigma, Strawman, coordinator,
    e2e, fair_k, fair_k_late, non_e2e, sigma, strawman,
};
use peerlock_sim::latency::{MatrixError, Network};
use peerlock_sim::{self as sim, Drive, Erased, Failure, Ideal, Report, Wire};
use peerlock_types::{PeerId, Span};
use thiserror::Error;

use crate::setting::{session, set};
use crate::{Among, Form, Protocol, Recovery, Setting, Workload};

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
        let replicas = self.replicas();
        let report = match self.workload() {
            Workload::Closed if self.protocol() == Protocol::Custody => self.custody()?.run(progress),
            Workload::Closed if self.protocol() == Protocol::Ideal => {
                let experiment = self.experiment()?;
                let (peers, slots) = (experiment.peers, experiment.slots);
                experiment.run(|latency| Ideal::peers(peers, slots, latency), progress)
            }
            Workload::Closed => self.of_loop(Loop { experiment: self.experiment()?, replicas, progress }),
            Workload::Open => self.with_replicas(Clients { open: self.open()?, replicas, progress }),
            Workload::Rounds => self.on_overlay(Overlay { rounds: self.rounds()?, progress }),
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
        let replicas = self.replicas();
        Ok(match self.workload() {
            Workload::Closed => {
                let (Erased { kinds, new }, experiment) = (self.of_loop(Erase), self.experiment()?);
                experiment.drive(kinds, |_| peers(&experiment, &replicas, &new), driver)
            }
            Workload::Open => {
                let Erased { kinds, new } = self.with_replicas(Erase);
                self.open()?.drive(kinds, |me| new(me, &replicas), driver)
            }
            Workload::Rounds => {
                let Erased { kinds, new } = self.on_overlay(Erase);
                self.rounds()?.drive(kinds, new, driver)
            }
        })
    }

    /// Returns the cost of the run: about the number of acquisitions.
    pub fn cost(&self) -> u64 {
        u64::from(self.trials()).saturating_mul(self.cost_of_a_trial())
    }

    fn cost_of_a_trial(&self) -> u64 {
        let number = |value| u64::from(set(value));
        match self.workload() {
            Workload::Closed => number(self.peers) * number(self.entries),
            Workload::Open => {
                (set(self.arrival_rate) * (set(self.settle) + set(self.measure)).as_secs_f64()).ceil() as u64
            }
            Workload::Rounds => {
                let factor = match set(self.load) {
                    sim::Load::Whole => 1,
                    sim::Load::PerPeer => number(self.peers),
                };
                (number(self.rounds) * number(self.requests)).saturating_mul(factor)
            }
        }
    }

    /// Returns the number of hosts at the start, which a latency file must have.
    pub fn hosts(&self) -> usize {
        self.servers() + self.peers.unwrap_or(0) as usize
    }

    /// Returns the number of replicas that are not peers as well.
    fn servers(&self) -> usize {
        let are_apart = self.among() == Among::Replicas;
        self.replicas.filter(|_| are_apart).map_or(0, |replicas| replicas as usize)
    }

    fn network(&self) -> Result<Network, MatrixError> {
        set(self.latency.as_ref()).load(self.hosts())
    }

    fn experiment(&self) -> Result<sim::Experiment, MatrixError> {
        Ok(sim::Experiment {
            peers: self.hosts(),
            servers: self.servers(),
            slots: self.slots.unwrap_or(1),
            workload: self.think_and_hold(),
            network: self.network()?,
            links: set(self.links),
            faults: self.faults(),
            count_violations: self.count_violations,
            warm_up: set(self.warm_up),
            trials: self.trials(),
            seed: self.seed(),
        })
    }

    fn custody(&self) -> Result<sim::Custody, MatrixError> {
        Ok(sim::Custody {
            peers: self.hosts(),
            voters: set(self.replicas),
            slots: set(self.slots),
            session: session(set(self.lease)).expect("checked: the session length is valid"),
            workload: self.think_and_hold(),
            network: self.network()?,
            faults: self.faults(),
            count_violations: self.count_violations,
            warm_up: set(self.warm_up),
            trials: self.trials(),
            seed: self.seed(),
        })
    }

    fn think_and_hold(&self) -> sim::Closed {
        sim::Closed { think: mean_gap(set(self.think_rate)), hold: set(self.hold), entries: set(self.entries) }
    }

    fn open(&self) -> Result<sim::Open, MatrixError> {
        Ok(sim::Open {
            replicas: set(self.replicas),
            workload: sim::Poisson {
                gap: mean_gap(set(self.arrival_rate)),
                hold: self.hold,
                settle: set(self.settle),
                measure: set(self.measure),
            },
            network: self.network()?,
            links: set(self.links),
            faults: self.faults(),
            lease: set(self.lease),
            count_violations: self.count_violations,
            trials: self.trials(),
            seed: self.seed(),
        })
    }

    fn rounds(&self) -> Result<sim::Rounds, MatrixError> {
        Ok(sim::Rounds {
            peers: self.hosts(),
            overlay: set(self.overlay),
            resources: set(self.resources) as usize,
            quorum: set(self.quorum()),
            settle: set(self.settle),
            rounds: set(self.rounds) as usize,
            round: set(self.round),
            requests: set(self.requests) as usize,
            load: set(self.load),
            churn: set(self.churn) as usize,
            network: self.network()?,
            links: set(self.links),
            faults: self.faults(),
            lease: set(self.lease),
            count_violations: self.count_violations,
            trials: self.trials(),
            seed: self.seed(),
            ..sim::Rounds::default()
        })
    }

    fn of_loop<U: Use>(&self, user: U) -> U::Output {
        if self.replicas.is_some() { self.with_replicas(user) } else { self.among_peers(user) }
    }

    fn among_peers<U: Use>(&self, user: U) -> U::Output {
        let layout = Layout::printed(set(self.peers).into(), set(self.slots));
        match self.protocol() {
            Protocol::FairK => {
                let config = self.form_of(fair_k::Config::PRINTED, fair_k::Config::REPAIRED);
                self.with_backups(user, move |me| FairK::new(me, &layout, config))
            }
            Protocol::FairKLate => {
                self.with_backups(user, move |me| FairKLate::new(me, &layout, fair_k_late::Config::default()))
            }
            Protocol::Bv95(config) => self.with_backups(user, move |me| Bv95::new(me, &layout, config)),
            protocol => unreachable!("{protocol} does not run among peers"),
        }
    }

    fn with_backups<P: Backable<Message: Wire> + Wire + 'static, U: Use>(
        &self,
        user: U,
        new: impl Fn(PeerId) -> P + Sync + 'static,
    ) -> U::Output {
        let Some(copies) = self.backups else { return user.peers(move |me, _| new(me)) };
        let config = backed::Config { backups: copies as usize, recovers: self.recovery == Some(Recovery::Broadcast) };
        let ring = Ring::mixed((0..set(self.peers).into()).map(PeerId::new));
        user.peers(move |me, _| Backed::new(me, &ring, config, &new))
    }

    fn with_replicas<U: Use>(&self, user: U) -> U::Output {
        match self.protocol() {
            Protocol::Sigma | Protocol::SigmaOnce => user.peers(self.sigma()),
            Protocol::Strawman | Protocol::StrawmanRetry => {
                let gives_up = self.protocol() == Protocol::Strawman;
                let config = if gives_up { strawman::Config::GIVES_UP } else { strawman::Config::BACKS_OFF };
                let config = strawman::Config { lease: set(self.lease), ..config };
                user.peers(move |me, replicas: &Replicas| Strawman::new(me, replicas, config))
            }
            Protocol::Coordinator => user.peers(self.coordinator()),
            protocol => unreachable!("{protocol} has no replicas that clients know"),
        }
    }

    fn on_overlay<U: Use>(&self, user: U) -> U::Output {
        let lease = set(self.lease);
        match self.protocol() {
            Protocol::Sigma => user.peers(self.sigma()),
            Protocol::Coordinator => user.peers(self.coordinator()),
            Protocol::E2e => {
                let config = self.form_of(e2e::Config::PRINTED, e2e::Config::REPAIRED);
                // Ten leases between pings, as by default, but at most the paper's ten minutes: with short leases a run
                // would end before a dead owner is detected. The printed form has no leases.
                let ten_leases = Span::from_nanos(lease.as_nanos().saturating_mul(10));
                let ping = self.form_of(config.ping, config.ping.min(ten_leases));
                let config = e2e::Config { lease, ping, ..config };
                user.peers(move |me, replicas: &Replicas| E2e::new(me, replicas, config))
            }
            Protocol::NonE2e => {
                let config = self.form_of(non_e2e::Config::PRINTED, non_e2e::Config::REPAIRED);
                let config = non_e2e::Config { lease, ..config };
                user.peers(move |me, replicas: &Replicas| NonE2e::new(me, replicas, config))
            }
            protocol => unreachable!("{protocol} does not run on an overlay"),
        }
    }

    /// Returns those that all clients know; one that is never used among peers.
    fn replicas(&self) -> Replicas {
        Replicas::first(self.quorum().unwrap_or(Quorum::new(1, 1)))
    }

    fn sigma(&self) -> impl Fn(PeerId, &Replicas) -> Sigma + Sync + use<> {
        let config = match self.protocol() {
            Protocol::SigmaOnce => sigma::Config { idempotent_requests: true, ..sigma::Config::PRINTED },
            _ => self.form_of(sigma::Config::PRINTED, sigma::Config::REPAIRED),
        };
        let config = sigma::Config { lease: set(self.lease), retry: self.retry.unwrap_or(config.retry), ..config };
        move |me, replicas| Sigma::new(me, replicas, config)
    }

    fn coordinator(&self) -> impl Fn(PeerId, &Replicas) -> Coordinator + Sync + use<> {
        let config = self.form_of(coordinator::Config::PRINTED, coordinator::Config::REPAIRED);
        let lease = set(self.lease);
        // Ten pings per lease and four per term, as by default.
        let term = Span::from_nanos((u128::from(lease.as_nanos()) * 4 / 10) as u64); // The lease may be long.
        let config = coordinator::Config { lease, ping: lease / 10, term, ..config };
        move |me, replicas| Coordinator::new(me, replicas, config)
    }

    /// The form is repaired if there is only one.
    fn form_of<T>(&self, printed: T, repaired: T) -> T {
        if self.form == Some(Form::Printed) { printed } else { repaired }
    }
}

fn mean_gap(rate: f64) -> Span {
    Span::from_secs_f64(1.0 / rate)
}

trait Peer: Observe<Timer: Hash + Wire, Message: Wire> + 'static {}

impl<P: Observe<Timer: Hash + Wire, Message: Wire> + 'static> Peer for P {}

/// A use of a protocol's peers, whose type depends on the protocol's name.
trait Use {
    type Output;

    fn peers<P: Peer>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Self::Output;
}

struct Erase;

impl Use for Erase {
    type Output = Erased;

    fn peers<P: Peer>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Erased {
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

    fn peers<P: Peer>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Simulated {
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

    fn peers<P: Peer>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Simulated {
        self.open.run(|me| new(me, &self.replicas), self.progress)
    }
}

struct Overlay<'a> {
    rounds: sim::Rounds,
    progress: Progress<'a>,
}

impl Use for Overlay<'_> {
    type Output = Simulated;

    fn peers<P: Peer>(self, new: impl Fn(PeerId, &Replicas) -> P + Sync + 'static) -> Simulated {
        self.rounds.run(new, self.progress)
    }
}
