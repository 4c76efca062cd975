use peerlock_base::Span;

use super::Hold;

/// Clients without number, each of which asks once; they come at random moments, whatever becomes of those before
/// them (Sigma paper, §5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Poisson {
    /// The mean time between two clients: 1/λ.
    pub gap: Span,
    /// How long a client stays inside; `None`: it leaves at once.
    pub hold: Option<Hold>,
    /// How long the run goes on before anything is measured.
    pub settle: Span,
    /// How long it is measured after that.
    pub measure: Span,
}

impl Poisson {
    /// "After 5 minutes warm-up period …" (§5).
    pub const SETTLE: Span = Span::from_secs(300);
    /// "… we test 10 minutes."
    pub const MEASURE: Span = Span::from_secs(600);
}
