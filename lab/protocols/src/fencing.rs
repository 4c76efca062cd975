//! Fencing numbers from a quorum of replicas that may forget.
//!
//! Each replica has a *level*: no smaller than any fencing number it knows to have been given. It tells its level with
//! its vote. A winner takes the votes of m replicas with levels l₁ … l_m and gives itself the number max l + 1, which
//! is allowed only if max l + 1 ≤ min l + [`LEAP`]: no voter lags too far behind. What a winner knows of levels it
//! tells with every message, and above all its own number with RELEASE; a replica raises its level to what it hears.
//! When a vote ends in any other way than by RELEASE or YIELD (the lease ran out) the replica raises its level by
//! `LEAP`.
//!
//! **When numbers increase.** Let D win after C. Any m voters of C and m voters of D share at least 2m − n replicas.
//! One that was not reset between its two votes ended C's before it gave D's. If C released, its level is C's number or
//! more; if C's lease ran out, its level had been l and is l + `LEAP` or more, and C's number is at most that by the
//! condition above; and C did not count a vote that it had yielded. Either way D sees a level no smaller than C's
//! number and takes a larger one. So the number increases from each grant to the next as long as fewer than 2m − n of
//! the replicas are reset between giving their vote to the one and to the other. No clock is needed.
//!
//! **Beyond that** a replica starts its new life with its incarnation number as level. Where that is a reading of a
//! wall clock, numbers go on increasing even after all replicas have forgotten, as long as fewer numbers were given out
//! than the clock has ticked and the clock of the new host is not behind. That is a safety net, not part of the proof.

/// How far a replica's level rises when it cannot know which number was used, and so by how much the levels of a
/// winner's voters may differ. Our choice: large enough that replicas which missed a few hand-overs still count.
pub const LEAP: u64 = 1 << 20;

/// The number of a new grant, from the levels told with the votes; `None` if no `votes` of them are near enough to each
/// other. Then the winner must first tell the voters that lag behind.
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
    fn the_number_is_above_all_levels_of_a_quorum_and_within_reach_of_each() {
        let cases: [(&[u64], u32, Option<u64>); 7] = [
            (&[0, 0, 0], 2, Some(1)),
            (&[7, 0, 3], 2, Some(8)),
            (&[LEAP - 1, 0], 2, Some(LEAP)),
            (&[LEAP, 0], 2, None),
            (&[5, 5 + LEAP, 5], 2, Some(6)), // The two that agree are a quorum without the third.
            (&[5, 5 + LEAP, 9 + LEAP], 2, Some(10 + LEAP)),
            (&[5], 2, None),
        ];
        for (levels, votes, expected) in cases {
            assert_eq!(number(&mut levels.to_vec(), votes), expected, "{levels:?}");
        }
    }
}
