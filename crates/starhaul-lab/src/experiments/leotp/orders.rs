//! The orders of table II: which row of the ablation has less of a figure than which other one, by either rule. `--check` and the long tests
//! hold medians to them.

/// Key of the throughput in Mbit/s.
pub(super) const GOODPUT: &str = "goodput_mbps";
/// Key of the mean one-way delay in ms.
pub(super) const DELAY: &str = "owd_mean_ms";

/// Rows A to D of the table by one rule, and the orders that they keep.
#[derive(Clone, Copy, Debug)]
pub struct Ablation {
    /// Systems: LEOTP whole, without recovery by hops, without control by hops, and without either.
    pub rows: [&'static str; 4],
    /// What is less than what.
    pub orders: &'static [Order],
}

/// One row has less of a figure than another.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Key of the figure's column.
    pub figure: &'static str,
    /// Index in [`Ablation::rows`] of the row with less.
    pub less: usize,
    /// That of the row with more.
    pub more: usize,
    /// Stations to which it does not hold.
    pub but_to: &'static [&'static str],
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

/// By our rule the published order of throughput, but that to Hong Kong and Paris B and C carry the same; and of delay, but that to Hong Kong D
/// comes before C, and to New York A before D.
pub const OURS: Ablation = Ablation {
    rows: [
        "leotp",
        "leotp-no-cache",
        "leotp-e2e-control",
        "leotp-neither",
    ],
    orders: &[
        slower(B, A),
        slower(C, A),
        slower(C, B).but_to(&["Hong Kong", "Paris"]),
        slower(D, B),
        slower(D, C),
        sooner(C, A),
        sooner(A, B),
        // There neither sends so much less that it has the shorter queue.
        sooner(C, D).but_to(&["Hong Kong"]),
    ],
};

/// By the published rule A > B > C > D in throughput and C < D < A < B in delay, as published, but that to Paris C and D carry the same. Its nodes
/// hear of no change of a path, as in the publication.
pub const PUBLISHED: Ablation = Ablation {
    rows: [
        "leotp-published-untold",
        "leotp-published-no-cache-untold",
        "leotp-published-e2e-control-untold",
        "leotp-published-neither-untold",
    ],
    orders: &[
        slower(B, A),
        slower(C, B),
        slower(D, B),
        slower(D, C).but_to(&["Paris"]),
        sooner(C, D),
        sooner(D, A),
        sooner(A, B),
    ],
};

/// Either rule.
pub(super) const RULES: [Ablation; 2] = [OURS, PUBLISHED];

const fn slower(less: usize, more: usize) -> Order {
    Order {
        figure: GOODPUT,
        less,
        more,
        but_to: &[],
    }
}

const fn sooner(less: usize, more: usize) -> Order {
    Order {
        figure: DELAY,
        ..slower(less, more)
    }
}

impl Order {
    const fn but_to(self, stations: &'static [&'static str]) -> Self {
        Self {
            but_to: stations,
            ..self
        }
    }

    /// Whether it holds on paths that lead there.
    pub fn is_kept_to(&self, station: &str) -> bool {
        !self.but_to.contains(&station)
    }
}

impl Ablation {
    /// Its rows among the chosen systems, or all if none is chosen. The whole alone is compared with nothing here, and does not run.
    pub(super) fn chosen(&self, systems: &[&str]) -> Vec<&'static str> {
        let is_chosen = |row: &&'static str| systems.is_empty() || systems.contains(row);
        let chosen: Vec<&str> = self.rows.into_iter().filter(is_chosen).collect();
        match chosen[..] == self.rows[..1] {
            true => Vec::new(),
            false => chosen,
        }
    }

    /// The rows that have more of a figure than this one, on paths that lead to a station.
    pub(super) fn above(&self, row: &str, station: &str, figure: &str) -> Vec<&'static str> {
        let is_above = |order: &&Order| {
            order.figure == figure && self.rows[order.less] == row && order.is_kept_to(station)
        };
        let orders = self.orders.iter().filter(is_above);
        orders.map(|order| self.rows[order.more]).collect()
    }
}
