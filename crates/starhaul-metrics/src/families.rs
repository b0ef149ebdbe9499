//! Families of metrics, each written at once from the figures of a status, in OpenMetrics text (OpenMetrics 1.0).

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeMetric, MetricEncoder, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};

use crate::Process;

/// Names and values of the labels of one series.
pub type Labels<'s, const N: usize> = [(&'static str, &'s str); N];

/// The figures of a program at one moment.
pub trait Figures: fmt::Debug + Send + Sync + 'static {
    /// Writes all families. Labels are names of the configuration and fixed texts: no client and no peer adds one.
    ///
    /// # Errors
    /// Those of the families.
    fn write(&self, families: &mut Families<'_>) -> fmt::Result;
}

/// The text of these figures, with its end mark.
pub fn encode<F: Figures>(figures: &Arc<F>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment(figures.clone())));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// Written out when the registry asks for it.
#[derive(Debug)]
struct Moment<F>(Arc<F>);

impl<F: Figures> Collector for Moment<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Families(encoder))
    }
}

/// Writes families one after another.
#[derive(Debug)]
pub struct Families<'e>(DescriptorEncoder<'e>);

impl Families<'_> {
    /// A family of figures that rise and fall; `unit` ends its name.
    ///
    /// # Errors
    /// None where the text is kept in memory.
    pub fn gauge<'s, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        series: impl IntoIterator<Item = (Labels<'s, N>, f64)>,
    ) -> fmt::Result {
        let series = series.into_iter();
        let series = series.map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, help, unit, MetricType::Gauge, series)
    }

    /// A family of figures that only rise; `unit` and `total` end its name.
    ///
    /// # Errors
    /// None where the text is kept in memory.
    pub fn counter<'s, const N: usize, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        series: impl IntoIterator<Item = (Labels<'s, N>, V)>,
    ) -> fmt::Result {
        let series = series.into_iter();
        let series = series.map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, help, unit, MetricType::Counter, series)
    }

    /// A fact without a figure.
    ///
    /// # Errors
    /// None where the text is kept in memory.
    pub fn info<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: &Labels<'_, N>,
    ) -> fmt::Result {
        let family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Info)?;
        let labels = labels.iter();
        let labels: Vec<_> = labels
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Info::new(labels).encode(family)
    }

    /// Version, uptime and memory of the program and its processor time, as each program tells them.
    ///
    /// # Errors
    /// None where the text is kept in memory.
    pub fn program(&mut self, version: &str, uptime_s: f64, process: Process) -> fmt::Result {
        let version = [("version", version)];
        self.info("starhaul_build", "Version of the software", &version)?;
        self.gauge(
            "starhaul_uptime",
            "Time since the start",
            Some(Unit::Seconds),
            [([], uptime_s)],
        )?;
        let resident = process.resident_bytes.map(|bytes| ([], bytes as f64));
        self.gauge(
            "process_resident_memory",
            "Resident memory of the process",
            Some(Unit::Bytes),
            resident,
        )?;
        self.counter(
            "process_cpu",
            "Processor time of the process",
            Some(Unit::Seconds),
            [([], process.cpu_s)],
        )
    }

    fn family<'s, const N: usize, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: MetricType,
        mut series: impl Iterator<Item = (Labels<'s, N>, M)>,
    ) -> fmt::Result {
        let unit = unit.as_ref();
        let mut family: MetricEncoder<'_> = self.0.encode_descriptor(name, help, unit, kind)?;
        if N == 0 {
            let single = series.next().map(|(_, metric)| metric.encode(family));
            return single.unwrap_or(Ok(()));
        }
        for (labels, metric) in series {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
