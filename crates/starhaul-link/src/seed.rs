//! Derives the seeds of links from that of a run.

/// The seed of link number `link` of a run. It is the same in virtual and in real time, so that the same links lose the
/// same packets, counted as they leave.
///
/// Runs of neighbouring seeds share no link seed as long as they have fewer than 2³² links.
pub fn link_seed(run: u64, link: usize) -> u64 {
    // The odd number nearest to 2⁶⁴ divided by the golden ratio: its multiples are far apart.
    run.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(link as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::link_seed;

    #[test]
    fn neighbouring_runs_share_no_links_seed() {
        let runs = [0, 1, 2, 3, u64::MAX];
        let all: HashSet<_> = runs
            .iter()
            .flat_map(|&run| (0..20_000).map(move |link| link_seed(run, link)))
            .collect();
        assert_eq!(all.len(), runs.len() * 20_000);
    }
}
