use peerlock_registry::{Config, Mutation, Ttl};
use peerlock_types::{Rng, Span};

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub seed: u64,
    /// 1, 3 or 7 give 1, 3 or 5 voters.
    pub keepers: usize,
    pub others: usize,
    pub loss: f64,
    pub duplication: f64,
    pub late: f64,
    pub late_by: Span,
    pub fault_every: Span,
    /// No crashes, but several leaders at once.
    pub is_cut: bool,
    pub upgrades: bool,
    /// No voter is lost then.
    pub chooses: bool,
    pub stops: bool,
    pub recovers: bool,
    pub ppm: u64,
    pub ttl: Span,
    pub slack: Span,
    pub is_judged: bool,
    pub mutation: Option<Mutation>,
}

impl Setting {
    pub fn draw(seed: u64) -> Self {
        let rng = &mut Rng::stream(seed, 1);
        let keepers = [1, 3, 3, 4, 5, 7, 8][rng.below(7) as usize];
        // Faults coincide most often in small runs.
        let others = if rng.chance(0.1) { rng.below(13) } else { rng.below(4) } as usize;
        let rate = |rng: &mut Rng, most: f64| if rng.chance(0.4) { 0.0 } else { most * rng.unit() };
        let is_cut = rng.chance(0.3);
        let setting = Self {
            seed,
            keepers,
            others,
            loss: rate(rng, 0.1),
            duplication: rate(rng, 0.1),
            late: rate(rng, 0.1),
            late_by: rng.between(Span::from_millis(50), Span::from_secs(4)),
            fault_every: rng.between(Span::from_millis(400), Span::from_secs(4)),
            is_cut,
            upgrades: rng.chance(0.3),
            chooses: rng.chance(0.25),
            stops: rng.chance(0.3),
            recovers: false,
            ppm: 10_000,
            ttl: Span::from_secs(3),
            slack: Span::ZERO,
            is_judged: true,
            mutation: None,
        };
        if keepers >= 3 && !is_cut && rng.chance(0.15) {
            return Self { recovers: true, chooses: false, ..setting };
        }
        if is_cut {
            let late_by = rng.between(Span::from_secs(1), Span::from_secs(4));
            let fault_every = rng.between(Span::from_millis(300), Span::from_secs(5));
            return Self {
                keepers: keepers.max(3),
                loss: 0.0,
                late: 0.8 * rng.unit(),
                late_by,
                fault_every,
                ..setting
            };
        }
        setting
    }

    /// No slack, which would hide an error of the rule.
    pub fn config(&self) -> Config {
        Config {
            slack: self.slack,
            replace_after: Span::from_secs(4),
            disk_patience: Span::from_millis(800),
            compact_after: 40,
            mutation: self.mutation,
            ..Config::default()
        }
    }

    pub fn ttl(&self) -> Ttl {
        Ttl::from_millis(self.ttl.as_nanos() / 1_000_000).expect("a valid duration")
    }
}
