//! The figures of a path over time.

use std::time::Duration;

use serde::Serialize;

/// What a path does over time, step by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Number of steps.
    pub steps: u32,
    /// Steps with a path.
    pub connected: u32,
    /// Steps at which the path is another one than at the step before, a loss and a return of it included.
    pub changes: u32,
    /// Steps at which the first or the last satellite is another one than at the step before.
    pub handovers: u32,
    sum: Duration,
    least: Option<Duration>,
    most: Duration,
    links: u64,
    last: Vec<u32>,
}

/// Figures for programs.
#[derive(Serialize)]
struct Told {
    steps: u32,
    connected: u32,
    changes: u32,
    handovers: u32,
    propagation_mean_ms: Option<f64>,
    propagation_least_ms: Option<f64>,
    propagation_most_ms: Option<f64>,
    links_mean: Option<f64>,
}

impl Figures {
    /// Adds a step: the nodes of its path, none without one, and the propagation over it.
    pub fn add(&mut self, nodes: &[u32], propagation: Duration) {
        if self.steps > 0 && nodes != self.last {
            self.changes += 1;
            self.handovers += u32::from(accesses(nodes) != accesses(&self.last));
        }
        self.steps += 1;
        if !nodes.is_empty() {
            self.connected += 1;
            self.sum += propagation;
            self.least = Some(
                self.least
                    .map_or(propagation, |least| least.min(propagation)),
            );
            self.most = self.most.max(propagation);
            self.links += nodes.len().saturating_sub(1) as u64;
        }
        self.last.clear();
        self.last.extend_from_slice(nodes);
    }

    /// Mean propagation of the steps with a path.
    pub fn propagation_mean(&self) -> Option<Duration> {
        self.sum.checked_div(self.connected)
    }

    /// Least and greatest propagation.
    pub fn propagation_range(&self) -> Option<(Duration, Duration)> {
        self.least.map(|least| (least, self.most))
    }

    /// Mean number of links of the steps with a path, the two to the ground included.
    #[expect(clippy::cast_precision_loss, reason = "far below 53 bits")]
    pub fn links_mean(&self) -> Option<f64> {
        (self.connected > 0).then(|| self.links as f64 / f64::from(self.connected))
    }
}

impl Serialize for Figures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let range = self.propagation_range();
        let told = Told {
            steps: self.steps,
            connected: self.connected,
            changes: self.changes,
            handovers: self.handovers,
            propagation_mean_ms: self.propagation_mean().map(ms),
            propagation_least_ms: range.map(|(least, _)| ms(least)),
            propagation_most_ms: range.map(|(_, most)| ms(most)),
            links_mean: self.links_mean(),
        };
        told.serialize(serializer)
    }
}

/// The first and the last satellite of a path.
pub(crate) fn accesses(nodes: &[u32]) -> Option<(u32, u32)> {
    let inner = nodes.get(1..nodes.len().saturating_sub(1))?;
    Some((*inner.first()?, *inner.last()?))
}
