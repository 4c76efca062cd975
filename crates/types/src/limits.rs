/// Of a resource.
pub const MOST_SLOTS: u32 = 1024;

/// Exclusive. Each generation has up to 2³² fencing numbers, so that none overflows.
pub const MOST_GENERATION: u64 = 1 << 29;
