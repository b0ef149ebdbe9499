//! Families of metrics, each written at once from the figures of a status.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::Unit,
};

/// Names and values of the labels of one series.
type Labels<'s, const N: usize> = [(&'static str, &'s str); N];

/// Writes families one after another.
#[derive(Debug)]
pub(super) struct Families<'e>(pub(super) DescriptorEncoder<'e>);

impl Families<'_> {
    /// A family of figures that rise and fall; `unit` ends its name.
    pub(super) fn gauge<'s, const N: usize>(
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
    pub(super) fn counter<'s, const N: usize, V: EncodeCounterValue>(
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
    pub(super) fn info<const N: usize>(
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
