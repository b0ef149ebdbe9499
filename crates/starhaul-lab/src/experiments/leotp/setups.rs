//! The published set-ups.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use starhaul_link::{Opportunities, Rate};
use starhaul_units::Bandwidth;

use crate::worlds::chain::{Flow, Hop, Plan};

/// All systems: ours, rivals, what ours is without one of its means, by our rule and by the published one, and what both are without news
/// of changes of the path.
pub(super) const SYSTEMS: &[&str] = &[
    "leotp",
    "leotp-published",
    "bbr",
    "cubic",
    "hybla",
    "vivace",
    "leocc",
    "split-tcp",
    "leotp-no-cache",
    "leotp-e2e-control",
    "leotp-neither",
    "leotp-published-no-cache-untold",
    "leotp-published-e2e-control-untold",
    "leotp-published-neither-untold",
    "leotp-untold",
    "leotp-published-untold",
];
/// How many of them are compared, and how many in short.
const COMPARED: usize = 8;
const COMPARED_QUICKLY: usize = 4;
const CONTENT_BYTES: u64 = 100_000_000;
/// Hop of figures 10 to 13.
const MBIT: u64 = 20;
const HOPS: usize = 5;
const HOP_DELAY_MS: u64 = 10;

/// A system in a set-up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the system.
    pub system: &'static str,
    /// Share of the packets that each hop loses.
    pub loss: f64,
    /// Hops of the path of the first flow, in the mean of the run.
    pub hops: f64,
    /// What the narrowest link carries in the mean, headers included, in Mbit/s, where rows tell what it leaves for payload.
    pub link_mbps: Option<f64>,
    /// The path switches each so many seconds; 0 for never.
    pub switch_s: f64,
    /// Where the path leads, if it is one through a constellation.
    pub to: Cow<'static, str>,
    /// Seed of everything random.
    pub seed: u64,
    /// What runs, or why it cannot.
    pub plan: Result<Plan, String>,
}

impl Setup {
    pub(super) fn new(system: &'static str, loss: f64, seed: u64, plan: Plan) -> Self {
        let first = plan.flows.first();
        Self {
            system,
            loss,
            hops: first.map_or(0.0, |flow| mean_hops(flow, plan.time)),
            link_mbps: None,
            switch_s: 0.0,
            to: Cow::Borrowed(""),
            seed,
            plan: Ok(plan),
        }
    }

    /// One that cannot run.
    pub(super) fn failed(system: &'static str, seed: u64, why: &impl ToString) -> Self {
        Self {
            plan: Err(why.to_string()),
            ..Self::new(system, 0.0, seed, Plan::chain(&[], Duration::ZERO))
        }
    }
}

/// Hops of a flow's path in the mean of so much time.
fn mean_hops(flow: &Flow, time: Duration) -> f64 {
    let changes = flow.path.iter().skip(1).map(|(at, _)| *at);
    let (mut hops, mut all) = (0.0, 0.0);
    for ((from, nodes), until) in flow.path.iter().zip(changes.chain([time])) {
        let seconds = until.min(time).saturating_sub(*from).as_secs_f64();
        let count = u32::try_from(nodes.len().saturating_sub(1)).unwrap_or(u32::MAX);
        hops += f64::from(count) * seconds;
        all += seconds;
    }
    if all > 0.0 { hops / all } else { 0.0 }
}

/// The systems that were chosen, or else those that are compared, or few of them.
pub(super) fn systems(quick: bool, chosen: &[&'static str]) -> Vec<&'static str> {
    let count = if quick { COMPARED_QUICKLY } else { COMPARED };
    match chosen {
        [] => SYSTEMS.iter().take(count).copied().collect(),
        chosen => chosen.to_vec(),
    }
}

/// Those of them whose paths may change: a split connection cannot move.
pub(super) fn moving(quick: bool, chosen: &[&'static str]) -> Vec<&'static str> {
    let systems = systems(quick, chosen).into_iter();
    systems.filter(|system| *system != "split-tcp").collect()
}

/// The chain of figures 10 to 12, or one of so many other hops.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) hops: usize,
    /// Each of them, with its loss.
    pub(super) link: Option<Hop>,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            hops: HOPS,
            link: None,
        }
    }
}

impl Chain {
    /// The losses to compare: these, or that of the link.
    fn losses(&self, published: &[f64]) -> Vec<f64> {
        match &self.link {
            Some(link) => vec![link.loss],
            None => published.to_vec(),
        }
    }

    fn plan(&self, loss: f64, time: Duration) -> Plan {
        let published = || Hop::new(MBIT, HOP_DELAY_MS, loss);
        let hop = self.link.clone().unwrap_or_else(published);
        Plan::chain(&vec![hop; self.hops], time)
    }

    /// What a link carries in the mean.
    fn link_mbps(&self) -> f64 {
        match self.link.as_ref().map(|link| &link.rate) {
            Some(Rate::Constant(rate)) => rate.mbit(),
            Some(Rate::Trace(trace)) => trace.mean_rate().mbit(),
            None => Bandwidth::from_mbit(MBIT).mbit(),
        }
    }
}

fn by_loss(
    systems: &[&'static str],
    seed: u64,
    losses: &[f64],
    plan: impl Fn(f64) -> Plan,
) -> Vec<Setup> {
    let each = |loss: &f64| {
        let loss = *loss;
        let plan = plan(loss);
        let of = move |system: &&'static str| Setup::new(system, loss, seed, plan.clone());
        systems.iter().map(of).collect::<Vec<_>>()
    };
    losses.iter().flat_map(each).collect()
}

/// Set-ups of the publication's figure 10.
pub fn delay(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    delay_over(&Chain::default(), quick, seed, chosen)
}

pub(super) fn delay_over(
    chain: &Chain,
    quick: bool,
    seed: u64,
    chosen: &[&'static str],
) -> Vec<Setup> {
    let time = Duration::from_secs(if quick { 10 } else { 60 });
    let losses = chain.losses(&[0.002, 0.01, 0.02]);
    by_loss(&systems(quick, chosen), seed, &losses, |loss| {
        chain.plan(loss, time)
    })
}

/// Figure 11. A system that has not ended after ten minutes is given up.
pub fn bytes(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    bytes_over(&Chain::default(), quick, seed, chosen)
}

pub(super) fn bytes_over(
    chain: &Chain,
    quick: bool,
    seed: u64,
    chosen: &[&'static str],
) -> Vec<Setup> {
    let losses: &[f64] = if quick {
        &[0.0, 0.02]
    } else {
        &[0.0, 0.004, 0.008, 0.012, 0.016, 0.02]
    };
    let length = if quick {
        CONTENT_BYTES / 10
    } else {
        CONTENT_BYTES
    };
    let losses = chain.losses(losses);
    by_loss(&systems(quick, chosen), seed, &losses, |loss| Plan {
        bytes: Some(length),
        ..chain.plan(loss, Duration::from_secs(600))
    })
}

/// Set-ups of the publication's figure 12.
pub fn hop_loss(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    hop_loss_over(&Chain::default(), quick, seed, chosen)
}

pub(super) fn hop_loss_over(
    chain: &Chain,
    quick: bool,
    seed: u64,
    chosen: &[&'static str],
) -> Vec<Setup> {
    let (losses, seconds): (&[f64], u64) = match quick {
        true => (&[0.0, 0.01], 10),
        false => (&[0.0, 0.0001, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01], 120),
    };
    let losses = chain.losses(losses);
    let mut setups = by_loss(&systems(quick, chosen), seed, &losses, |loss| {
        chain.plan(loss, Duration::from_secs(seconds))
    });
    for setup in &mut setups {
        setup.link_mbps = Some(chain.link_mbps());
    }
    setups
}

/// Figure 13: two paths of 5 hops between the same ends, with 80 and 90 ms of round-trip time.
pub fn switch(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    let (intervals, seconds): (&[u64], u64) = match quick {
        true => (&[2, 10], 20),
        false => (&[1, 2, 5, 10, 15, 20], 120),
    };
    let mut setups = Vec::new();
    for &interval in intervals {
        for system in moving(quick, chosen) {
            let mut setup = Setup::new(system, 0.0, seed, two_paths(interval, seconds));
            setup.switch_s = Duration::from_secs(interval).as_secs_f64();
            setups.push(setup);
        }
    }
    setups
}

fn two_paths(interval: u64, seconds: u64) -> Plan {
    let paths = [vec![0, 1, 2, 3, 4, 5], vec![0, 6, 7, 8, 9, 5]];
    let mut hops = BTreeMap::new();
    for (path, delay_ms) in paths.iter().zip([8, 9]) {
        for pair in path.windows(2) {
            hops.insert((pair[0], pair[1]), Hop::new(MBIT, delay_ms, 0.0));
        }
    }
    let switches = (0..seconds.div_ceil(interval)).zip([0, 1].into_iter().cycle());
    let path = switches
        .map(|(number, which)| (Duration::from_secs(number * interval), paths[which].clone()));
    Plan {
        hops,
        flows: vec![Flow {
            content: 1,
            start: Duration::ZERO,
            path: path.collect(),
        }],
        bytes: None,
        time: Duration::from_secs(seconds),
    }
}

/// Figure 14: ten hops of 10 ms; the second carries 11 and 9 Mbit/s in turn, 2 s each.
pub fn step(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    let time = Duration::from_secs(if quick { 20 } else { 120 });
    let mut hops = vec![Hop::new(MBIT, 10, 0.0); 10];
    let half = Duration::from_secs(2);
    let rates = [11, 9].map(|mbit| (half, Bandwidth::from_mbit(mbit)));
    let rates = match Opportunities::from_rates(rates) {
        Ok(rates) => Rate::Trace(Arc::new(rates)),
        Err(why) => return vec![Setup::failed("leotp", seed, &why)],
    };
    hops[1] = Hop {
        rate: rates,
        queue: 500,
        ..hops[1].clone()
    };
    let plan = Plan::chain(&hops, time);
    systems(quick, chosen)
        .into_iter()
        .map(|system| Setup::new(system, 0.0, seed, plan.clone()))
        .collect()
}

/// Figure 15: three flows over one hop of 5 Mbit/s, with 90, 120 and 150 ms of round-trip time.
pub fn fairness(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    let time = Duration::from_secs(if quick { 20 } else { 120 });
    let mut hops = BTreeMap::from([((3, 4), Hop::new(5, 10, 0.0))]);
    let mut flows = Vec::new();
    for (number, access_ms) in [15, 30, 45].into_iter().enumerate() {
        hops.insert((number, 3), Hop::new(MBIT, access_ms, 0.0));
        hops.insert((4, 5 + number), Hop::new(MBIT, 20, 0.0));
        flows.push(Flow {
            content: 1 + number as u64,
            start: Duration::ZERO,
            path: vec![(Duration::ZERO, vec![number, 3, 4, 5 + number])],
        });
    }
    let plan = Plan {
        hops,
        flows,
        bytes: None,
        time,
    };
    systems(quick, chosen)
        .into_iter()
        .map(|system| Setup::new(system, 0.0, seed, plan.clone()))
        .collect()
}

/// Ten requesters of one content of 50 MB behind one relay, which begin half a second apart.
pub fn sharing(quick: bool, seed: u64, chosen: &[&'static str]) -> Vec<Setup> {
    let mut hops = BTreeMap::from([((0, 1), Hop::new(MBIT, HOP_DELAY_MS, 0.01))]);
    let mut flows = Vec::new();
    for number in 0..10 {
        hops.insert((1, 2 + number), Hop::new(MBIT, HOP_DELAY_MS, 0.01));
        flows.push(Flow {
            content: 1,
            start: Duration::from_millis(500) * u32::try_from(number).unwrap_or(0),
            path: vec![(Duration::ZERO, vec![0, 1, 2 + number])],
        });
    }
    let plan = Plan {
        hops,
        flows,
        bytes: Some(if quick { 5_000_000 } else { 50_000_000 }),
        time: Duration::from_secs(300),
    };
    // Only our relays hold a content for more than one.
    let systems = match chosen {
        [] => &["leotp"],
        chosen => chosen,
    };
    let ours = systems.iter().filter(|system| system.starts_with("leotp"));
    ours.map(|system| Setup::new(system, 0.01, seed, plan.clone()))
        .collect()
}
