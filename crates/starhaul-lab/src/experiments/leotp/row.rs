//! One row: a system in a set-up.

use starhaul_plot::Column;

use super::setups::Setup;
use crate::{
    Error,
    worlds::chain::{Carrier, Figures, jain},
};

/// What one run of a set-up found, of all its flows together.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) setup: Setup,
    /// Of each flow.
    pub flows: Vec<Figures>,
}

impl Row {
    /// Runs a set-up.
    ///
    /// # Errors
    /// The set-up cannot be, a transfer failed, or a byte that arrived is not the one that was sent.
    pub fn of(setup: &Setup) -> Result<Self, Error> {
        let plan = setup
            .plan
            .as_ref()
            .map_err(|why| Error::Failed(why.clone()))?;
        let flows = Carrier::named(setup.system)?.run(plan, setup.seed)?;
        let setup = setup.clone();
        Ok(Self { setup, flows })
    }

    /// Verified data in order per second, of all flows together.
    pub fn goodput_mbps(&self) -> f64 {
        self.flows.iter().map(Figures::goodput_mbps).sum()
    }

    /// Mean one-way delay of the first flow.
    pub fn owd_mean_ms(&self) -> f64 {
        self.flows
            .first()
            .map_or(f64::NAN, |flow| flow.delays.mean_ms())
    }

    /// 99th percentile of the first flow's one-way delay.
    pub fn owd_p99_ms(&self) -> f64 {
        self.flows
            .first()
            .map_or(f64::NAN, |flow| flow.delays.percentile_ms(0.99))
    }

    /// Median one-way delay of the first flow, of all its packets and of those that came late.
    pub fn medians_ms(&self) -> [f64; 2] {
        let of = |flow: &Figures| {
            [&flow.delays, &flow.late_delays].map(|delays| delays.percentile_ms(0.5))
        };
        self.flows.first().map_or([f64::NAN; 2], of)
    }

    /// Bytes that the source sent, headers included.
    pub fn sender_bytes(&self) -> u64 {
        self.flows
            .iter()
            .map(|flow| flow.sender_bytes)
            .max()
            .unwrap_or(0)
    }

    /// Fairness between the flows.
    pub fn jain(&self) -> f64 {
        jain(
            &self
                .flows
                .iter()
                .map(Figures::goodput_mbps)
                .collect::<Vec<_>>(),
        )
    }
}

/// The table of all parts.
pub(super) fn columns() -> Vec<Column<Row>> {
    let number = |key, name, unit, decimals, of: fn(&Row) -> f64| {
        Column::number(key, name, unit, decimals, move |row: &Row| of(row).into())
    };
    vec![
        Column::name("system", "system", |row: &Row| row.setup.system.into()),
        Column::name("to", "to", |row: &Row| row.setup.to.into()),
        Column::share("loss", "loss per hop", 2, |row: &Row| row.setup.loss.into()).brief("loss"),
        Column::count("hops", "hops", |row: &Row| row.setup.hops.into()),
        number("switch_s", "switch", "s", 0, |row| row.setup.switch_s),
        Column::count("seed", "seed", |row: &Row| row.setup.seed.into()).dropped(),
        number("goodput_mbps", "goodput", "Mbit/s", 2, Row::goodput_mbps).median(),
        number("owd_mean_ms", "OWD mean", "ms", 1, Row::owd_mean_ms).median(),
        number("owd_p99_ms", "p99", "ms", 1, Row::owd_p99_ms).median(),
        number("late_p99_ms", "late p99", "ms", 1, |row| {
            row.flows
                .first()
                .map_or(f64::NAN, |flow| flow.late_delays.percentile_ms(0.99))
        })
        .median(),
        number("late_extra_ms", "late median", "ms", 1, |row| {
            let [all, late] = row.medians_ms();
            if late > 0.0 { late - all } else { f64::NAN }
        })
        .median(),
        Column::count("sender_bytes", "bytes sent", |row: &Row| {
            row.sender_bytes().into()
        })
        .median(),
        number("jain", "Jain", "", 4, Row::jain).median(),
    ]
}
