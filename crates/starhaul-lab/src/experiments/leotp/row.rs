//! One row: a system in a set-up.

use starhaul_link::Delays;
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
    /// Figures of each flow.
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

    /// The row of a set-up that did not run: its parameters alone.
    #[cfg(test)]
    pub(super) fn without_flows(setup: Setup) -> Self {
        let flows = Vec::new();
        Self { setup, flows }
    }

    /// Data in order per second, of all flows together; that of LEOTP is verified by its hash.
    pub fn goodput_mbps(&self) -> f64 {
        self.flows.iter().map(Figures::goodput_mbps).sum()
    }

    /// What the narrowest link leaves for payload, where the part tells its capacity: that in the mean, without what it loses and without the
    /// headers of full packets.
    pub fn ceiling_mbps(&self) -> Option<f64> {
        let link = self.setup.link_mbps?;
        let carrier = Carrier::named(self.setup.system).ok()?;
        Some(link * (1.0 - self.setup.loss) * carrier.payload_share())
    }

    /// Packets that links lost in the direction of the data, of all flows together.
    pub fn lost(&self) -> Option<u64> {
        self.flows.first().map(|flow| flow.lost)
    }

    /// Packets that hops asked for again though it was not them that lost them, of all flows together; see [`Figures::asked_elsewhere`].
    pub fn asked_elsewhere(&self) -> Option<u64> {
        self.flows.first()?.asked_elsewhere
    }

    /// Those per packets that links lost.
    pub fn elsewhere_share(&self) -> Option<f64> {
        let lost = self.lost().filter(|lost| *lost > 0)?;
        Some(self.asked_elsewhere()? as f64 / lost as f64)
    }

    /// Mean one-way delay of the first flow.
    pub fn owd_mean_ms(&self) -> Option<f64> {
        self.of_delays(|flow| &flow.delays, Delays::mean_ms)
    }

    /// 99th percentile of the first flow's one-way delay.
    pub fn owd_p99_ms(&self) -> Option<f64> {
        self.of_delays(|flow| &flow.delays, |delays| delays.percentile_ms(0.99))
    }

    /// The same of the packets that came late.
    pub fn late_p99_ms(&self) -> Option<f64> {
        self.of_delays(
            |flow| &flow.late_delays,
            |delays| delays.percentile_ms(0.99),
        )
    }

    /// By how much the median one-way delay of the first flow's late packets is longer than that of all.
    pub fn late_extra_ms(&self) -> Option<f64> {
        let median = |delays: &Delays| delays.percentile_ms(0.5);
        let all = self.of_delays(|flow| &flow.delays, median)?;
        Some(self.of_delays(|flow| &flow.late_delays, median)? - all)
    }

    /// A figure of delays of the first flow, if there is any.
    fn of_delays(
        &self,
        which: fn(&Figures) -> &Delays,
        figure: impl Fn(&Delays) -> f64,
    ) -> Option<f64> {
        let delays = which(self.flows.first()?);
        (delays.total().0 > 0).then(|| figure(delays))
    }

    /// Bytes that the source sent, headers included; none where a content was to be sent and has not arrived, for then they say nothing.
    pub fn sender_bytes(&self) -> Option<u64> {
        let has_end = self
            .setup
            .plan
            .as_ref()
            .is_ok_and(|plan| plan.bytes.is_some());
        if has_end && !self.flows.iter().all(|flow| flow.is_complete) {
            return None;
        }
        self.flows.iter().map(|flow| flow.sender_bytes).max()
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
    let some = |key, name, of: fn(&Row) -> Option<f64>| {
        Column::number(key, name, "ms", 1, move |row: &Row| of(row).into()).median()
    };
    vec![
        Column::name("system", "system", |row: &Row| row.setup.system.into()),
        Column::name("to", "to", |row: &Row| (&*row.setup.to).into()),
        Column::share("loss", "loss per hop", 2, |row: &Row| row.setup.loss.into()).brief("loss"),
        number("hops", "hops", "", 2, |row| row.setup.hops),
        number("switch_s", "switch", "s", 0, |row| row.setup.switch_s),
        Column::count("seed", "seed", |row: &Row| row.setup.seed.into()).dropped(),
        number("goodput_mbps", "goodput", "Mbit/s", 2, Row::goodput_mbps).median(),
        Column::number("ceiling_mbps", "ceiling", "Mbit/s", 2, |row: &Row| {
            row.ceiling_mbps().into()
        })
        .median(),
        some("owd_mean_ms", "OWD mean", Row::owd_mean_ms),
        some("owd_p99_ms", "p99", Row::owd_p99_ms),
        some("late_p99_ms", "late p99", Row::late_p99_ms),
        some("late_extra_ms", "late median", Row::late_extra_ms),
        Column::count("sender_bytes", "bytes sent", |row: &Row| {
            row.sender_bytes().into()
        })
        .median(),
        number("jain", "Jain", "", 4, Row::jain).median(),
        Column::count("lost", "lost", |row: &Row| row.lost().into()).median(),
        Column::count("asked_elsewhere", "asked elsewhere", |row: &Row| {
            row.asked_elsewhere().into()
        })
        .median(),
        Column::share("elsewhere_share", "of lost", 2, |row: &Row| {
            row.elsewhere_share().into()
        })
        .median(),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use std::time::Duration;

    use starhaul_plot::Table;

    use super::*;
    use crate::experiments::leotp::delay;

    /// Scripts find them by these names.
    #[test]
    fn a_row_has_its_parameters_and_figures_by_name() {
        let mut setup = delay(true, 1, &["leotp"]).pop().unwrap();
        setup.plan.as_mut().unwrap().time = Duration::from_secs(2);
        let row = Row::of(&setup).unwrap();
        let table = Table::of(&columns(), [&row]);
        let number = |key: &str| table.values(key).next().and_then(|value| value.number());
        assert_eq!([number("loss"), number("hops")], [Some(0.02), Some(5.0)]);
        for (key, figure) in [
            ("goodput_mbps", Some(row.goodput_mbps())),
            ("owd_mean_ms", row.owd_mean_ms()),
            ("owd_p99_ms", row.owd_p99_ms()),
            ("jain", Some(row.jain())),
        ] {
            assert!(figure.is_some() && number(key) == figure, "{key}");
        }
        assert!(number("sender_bytes").is_some_and(|sent| sent > 0.0));
        let json = &table.json()[0];
        let (params, metrics) = (&json["params"], &json["metrics"]);
        assert_eq!(
            (&params["loss"], &params["hops"]),
            (&json["loss"], &json["hops"])
        );
        assert!(params["loss"] == 0.02 && json["hops"] == 5.0, "{json}");
        assert_eq!(metrics["goodput_mbps"], json["goodput_mbps"]);
        assert!(metrics["sender_bytes"].is_u64(), "{json}");
    }
}
