//! Fencing numbers from a quorum of replicas that may forget.
//!
//! Each replica has a *level*, at least as high as every fencing number that it knows, and sends it with its vote. A
//! winner takes m votes with levels l₁ … l_m and uses max l + 1, if that is at most min l + [`LEAP`]. Every message of
//! a client carries the highest level that it knows, RELEASE its own number, and raises the replica's. When the lease
//! of a vote expires, the replica raises its level by `LEAP`.
//!
//! **When numbers increase.** Let D win after C. Their voters share at least 2m − n replicas. A shared one that was not
//! reset in between ended C's vote before it gave D's: C released, so its level is at least C's number; or C's lease
//! expired, so its level has risen by `LEAP`, to at least C's number by the condition above. So D uses a larger number
//! as long as fewer than 2m − n replicas are reset between the two votes. No clock is needed.
//!
//! A replica's first level is its incarnation number. If that is a wall clock, numbers increase even after all replicas
//! have forgotten, unless they were used faster than the clock ticks.

/// The maximum difference between the levels of a winner's voters. Our choice.
pub const LEAP: u64 = 1 << 20;

/// Returns `None` if no `votes` of the levels are close enough: the winner must first raise those that lag.
pub fn number(levels: &mut [u64], votes: u32) -> Option<u64> {
    levels.sort_unstable();
    let mut quorums = levels.windows(votes as usize);
    let near = |quorum: &&[u64]| quorum[quorum.len() - 1] - quorum[0] < LEAP;
    quorums.rfind(near).map(|quorum| quorum[quorum.len() - 1] + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_exceeds_levels_of_a_quorum_by_less_than_a_leap() {
        let cases: [(&[u64], u32, Option<u64>); 7] = [
            (&[0, 0, 0], 2, Some(1)),
            (&[7, 0, 3], 2, Some(8)),
            (&[LEAP - 1, 0], 2, Some(LEAP)),
            (&[LEAP, 0], 2, None),
            (&[5, 5 + LEAP, 5], 2, Some(6)), // The two equal levels are a quorum.
            (&[5, 5 + LEAP, 9 + LEAP], 2, Some(10 + LEAP)),
            (&[5], 2, None),
        ];
        for (levels, votes, expected) in cases {
            assert_eq!(number(&mut levels.to_vec(), votes), expected, "{levels:?}");
        }
    }
}
