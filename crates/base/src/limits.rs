/// The most slots that a resource can have.
pub const MOST_SLOTS: u32 = 1024;

/// Generations of a resource are below this. Fencing numbers begin anew with each of them, at most 2³² apart, so that
/// no number of any generation is too large to count on from.
pub const MOST_GENERATION: u64 = 1 << 29;
