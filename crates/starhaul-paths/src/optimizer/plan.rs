//! What the optimizer answers.

use super::{
    columns::Columns,
    model::{OptimizerError, Strategy},
};

/// Shares below this are rounding.
const LEAST_SHARE: f64 = 1e-9;

/// A strategy's part of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// How the bits are sent.
    pub strategy: Strategy,
    /// The part of them: above 0, at most 1.
    pub share: f64,
}

/// What becomes of one demand.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// The strategies in use, the greatest share first; they add up to 1.
    pub shares: Vec<Share>,
    /// Share of the data that arrives in time.
    pub quality: f64,
    /// Cost per second.
    pub cost: f64,
}

impl StreamPlan {
    /// The share of one strategy.
    pub fn share_of(&self, strategy: Strategy) -> f64 {
        let with = |share: &&Share| share.strategy == strategy;
        self.shares.iter().find(with).map_or(0.0, |with| with.share)
    }

    /// The share of data that leaves first on `path`.
    pub fn first_on(&self, path: usize) -> f64 {
        let on = |share: &&Share| share.strategy.first_path() == Some(path);
        self.shares.iter().filter(on).map(|share| share.share).sum()
    }
}

/// How each demand is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// One for each demand, in the problem's order.
    pub streams: Vec<StreamPlan>,
    /// Cost per second of all.
    pub cost: f64,
    /// Bits per second that each path carries.
    pub loads: Vec<f64>,
}

impl Plan {
    /// Makes a plan of the values of all columns: without rounding, with shares that add up to 1.
    pub(super) fn of(columns: &Columns, values: &[f64]) -> Self {
        let mut streams: Vec<StreamPlan> = (0..columns.streams)
            .map(|_| StreamPlan {
                shares: Vec::new(),
                quality: 0.0,
                cost: 0.0,
            })
            .collect();
        let mut sums = vec![0.0; columns.streams];
        for (column, value) in columns.list.iter().zip(values) {
            if *value > LEAST_SHARE {
                sums[column.stream] += value;
            }
        }
        let mut loads = vec![0.0; columns.paths];
        for (column, value) in columns.list.iter().zip(values) {
            if *value <= LEAST_SHARE {
                continue;
            }
            let share = value / sums[column.stream];
            let stream = &mut streams[column.stream];
            stream.shares.push(Share {
                strategy: column.strategy,
                share,
            });
            let rate = columns.rates[column.stream];
            stream.quality += share * column.delivered;
            stream.cost += share * rate * column.cost;
            for (path, load) in column.loads.into_iter().flatten() {
                loads[path] += share * rate * load;
            }
        }
        for stream in &mut streams {
            stream.shares.sort_by(|a, b| b.share.total_cmp(&a.share));
            stream.quality = stream.quality.min(1.0);
        }
        let cost = streams.iter().map(|stream| stream.cost).sum();
        Self {
            streams,
            cost,
            loads,
        }
    }

    /// The plan, if each demand reaches the quality `wanted`.
    ///
    /// # Errors
    /// [`OptimizerError::Infeasible`] with what the worst of them reaches.
    pub fn reaching(self, wanted: f64) -> Result<Self, OptimizerError> {
        let qualities = self.streams.iter().map(|stream| stream.quality);
        let possible = qualities.fold(1.0, f64::min);
        if possible + LEAST_SHARE >= wanted {
            return Ok(self);
        }
        Err(OptimizerError::Infeasible { wanted, possible })
    }
}
