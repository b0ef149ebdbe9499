//! The columns of the linear program: every strategy of every demand that may be worth something, with what it delivers, loads and costs.

use starhaul_fec::{Losses, remaining_losses};

use super::model::{CodeSize, Demand, OfferedPath, Problem, Strategy};

/// Losses below this cannot be measured, and would span too many orders of magnitude.
const LEAST_LOSS: f64 = 1e-6;
/// Qualities count in steps of 10⁻⁷: a solver does not tell finer ones apart, and neither does a measurement.
const QUALITY_STEPS: f64 = 1e7;
/// Among plans of equal quality and cost, the sooner arrival: this part of the greatest price for a whole lifetime.
const DELAY_PRICE: f64 = 1e-6;
/// Probability with which a code of full size may fail.
const CODE_FAILURE: f64 = 1e-3;
/// What strategies carry of a demand misses all of it by rounding alone.
const WHOLE_ROUNDING: f64 = 1e-9;

/// One strategy of one demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) stream: usize,
    pub(super) strategy: Strategy,
    /// Share of the data that arrives in time.
    pub(super) delivered: f64,
    /// The same as it counts: in steps, and a negligible loss is none.
    pub(super) quality: f64,
    /// Paths, and bits on them for each bit of data.
    pub(super) loads: [Option<(usize, f64)>; 2],
    /// For each bit of data.
    pub(super) cost: f64,
    /// What the least cost is sought of: cost relative to the greatest, and a little for the delay.
    pub(super) price: f64,
}

/// All columns, and the rows' limits in units of all demands together.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) list: Vec<Column>,
    pub(super) streams: usize,
    pub(super) paths: usize,
    /// Bits per second of each demand.
    pub(super) rates: Vec<f64>,
    /// Each demand's part of all.
    pub(super) weights: Vec<f64>,
    /// Each demand's part of those of its priority.
    parts: Vec<f64>,
    /// The greatest quality of each demand's strategies.
    greatest: Vec<f64>,
    /// Paths that could be filled, and what they carry.
    pub(super) limits: Vec<(usize, f64)>,
    /// The budget in units of the greatest price.
    pub(super) budget: Option<f64>,
    greatest_cost: f64,
}

impl Columns {
    /// Where packets are lost each by itself.
    #[cfg(test)]
    pub(super) fn of(problem: &Problem<'_>) -> Self {
        Self::in_bursts(problem, &[])
    }

    /// Where each path loses so many packets in a row on average; those of which nothing is said lose each by itself.
    pub(super) fn in_bursts(problem: &Problem<'_>, burst_lengths: &[f64]) -> Self {
        let rates = problem.demands.iter();
        let rates: Vec<f64> = rates
            .map(|demand| demand.rate.bits_per_second() as f64)
            .collect();
        let total = rates.iter().sum::<f64>().max(1.0);
        let costs = problem.paths.iter().map(|path| path.cost);
        let greatest_cost = costs.fold(0.0, f64::max);
        let greatest_cost = if greatest_cost > 0.0 {
            greatest_cost
        } else {
            1.0
        };
        let carried = problem.paths.iter().enumerate();
        let most = problem.demands.iter().map(most_bits).fold(0.0, f64::max);
        let limits = carried
            .map(|(path, offered)| (path, offered.bandwidth.bits_per_second() as f64 / total))
            .filter(|(_, limit)| *limit < most);
        let mut columns = Self {
            list: Vec::new(),
            streams: problem.demands.len(),
            paths: problem.paths.len(),
            weights: rates.iter().map(|rate| rate / total).collect(),
            parts: parts_of_levels(problem.demands, &rates),
            greatest: vec![0.0; problem.demands.len()],
            rates,
            limits: limits.collect(),
            budget: problem
                .budget
                .map(|budget| budget / total / greatest_cost)
                .filter(|budget| *budget < most),
            greatest_cost,
        };
        let least_delay = problem.paths.iter().map(|path| micros(path.delay)).min();
        for (stream, demand) in problem.demands.iter().enumerate() {
            let least_delay = least_delay.unwrap_or(0);
            columns.add_demand(stream, demand, problem.paths, burst_lengths, least_delay);
        }
        for column in &columns.list {
            let greatest = &mut columns.greatest[column.stream];
            *greatest = greatest.max(column.quality);
        }
        columns
    }

    /// No strategy of its demand has a greater quality.
    pub(super) fn is_best(&self, column: &Column) -> bool {
        column.quality >= self.greatest[column.stream]
    }

    /// With these shares of all columns, all that the demands of a level offer is sent with the greatest quality that there is: no plan gives
    /// the level more, and one that gives it as much uses none of its other strategies.
    pub(super) fn is_whole(&self, demands: &[Demand], level: u8, values: &[f64]) -> bool {
        let mut sums = vec![0.0; self.streams];
        for (column, value) in self.list.iter().zip(values) {
            if self.is_best(column) {
                sums[column.stream] += value;
            }
        }
        let mut of_level = demands.iter().zip(sums);
        of_level.all(|(demand, sum)| demand.priority != level || sum >= 1.0 - WHOLE_ROUNDING)
    }

    fn add_demand(
        &mut self,
        stream: usize,
        demand: &Demand,
        paths: &[OfferedPath],
        burst_lengths: &[f64],
        least_delay: u64,
    ) {
        let lifetime = micros(demand.lifetime);
        let drop = Offer {
            strategy: Strategy::Drop,
            remaining_loss: 1.0,
            loads: [None; 2],
            cost: 0.0,
            delay: 0,
        };
        self.add(stream, demand, drop);
        let in_time = |path: &&(usize, &OfferedPath)| micros(path.1.delay) <= lifetime;
        let all: Vec<_> = paths.iter().enumerate().collect();
        let usable: Vec<_> = all
            .iter()
            .filter(in_time)
            .filter(|(_, path)| path.bandwidth.bits_per_second() > 0)
            .copied()
            .collect();
        // Each path once, and with each for what it loses.
        self.list.reserve(usable.len() * (usable.len() + 1));
        for &(at, path) in &usable {
            let loss = loss_of(path);
            let plain = Offer {
                strategy: Strategy::Plain { path: at },
                remaining_loss: loss,
                loads: [Some((at, 1.0)), None],
                cost: path.cost,
                delay: micros(path.delay),
            };
            self.add(stream, demand, plain);
            if loss <= demand.negligible_loss {
                continue;
            }
            let known_after = path
                .loss_known_after
                .map_or_else(|| micros(path.delay).saturating_add(least_delay), micros);
            let mut least_remaining = loss;
            if demand.protection.retransmits {
                for &(other, again) in &usable {
                    let delay = known_after.saturating_add(micros(again.delay));
                    if delay > lifetime {
                        continue;
                    }
                    let remaining_loss = loss * loss_of(again);
                    least_remaining = least_remaining.min(remaining_loss);
                    let retransmission = Offer {
                        strategy: Strategy::Retransmit {
                            path: at,
                            again: other,
                        },
                        remaining_loss,
                        loads: loads((at, 1.0), (other, loss)),
                        cost: path.cost + loss * again.cost,
                        delay: micros(path.delay),
                    };
                    self.add(stream, demand, retransmission);
                }
            }
            // A retransmission loads the paths with what was lost; a code always with more.
            if least_remaining > demand.negligible_loss {
                self.add_codes(stream, demand, (at, path), &usable, burst_lengths);
            }
        }
    }

    /// Codes with their redundancy on the same path, on the one that loses least, and on the cheapest.
    fn add_codes(
        &mut self,
        stream: usize,
        demand: &Demand,
        (at, path): (usize, &OfferedPath),
        usable: &[(usize, &OfferedPath)],
        burst_lengths: &[f64],
    ) {
        let Some(size) = demand.protection.code.filter(|size| size.data > 0) else {
            return;
        };
        let others = || usable.iter().filter(|(other, _)| *other != at);
        let safest = others().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss));
        let cheapest = others().min_by(|a, b| a.1.cost.total_cmp(&b.1.cost));
        let cheapest = cheapest.filter(|(other, _)| safest.is_none_or(|safest| safest.0 != *other));
        let own = (at, path);
        let lossy = |(at, path): (usize, &OfferedPath)| Lossy {
            share: loss_of(path),
            burst_length: burst_lengths.get(at).copied().unwrap_or(1.0),
        };
        for &(other, redundancy_path) in [Some(&own), safest, cheapest].into_iter().flatten() {
            let second = lossy((other, redundancy_path));
            let (full, remaining) = sizes(size, lossy(own), second, other == at);
            let half = full.div_ceil(2);
            for redundancy in [full, half] {
                if redundancy == 0 || (redundancy == half && half == full && full > 1) {
                    continue;
                }
                let rate = f64::from(redundancy) / f64::from(size.data);
                let code = Offer {
                    strategy: Strategy::Code {
                        path: at,
                        redundancy_path: other,
                        data: size.data,
                        redundancy,
                    },
                    remaining_loss: remaining(redundancy),
                    loads: loads((at, 1.0), (other, rate)),
                    cost: path.cost + rate * redundancy_path.cost,
                    delay: micros(path.delay),
                };
                self.add(stream, demand, code);
                if half == full {
                    break;
                }
            }
        }
    }

    fn add(&mut self, stream: usize, demand: &Demand, offer: Offer) {
        let lifetime = micros(demand.lifetime).max(1) as f64;
        let delivered = 1.0 - offer.remaining_loss;
        let is_dropped = offer.strategy == Strategy::Drop;
        if delivered <= 0.0 && !is_dropped {
            return;
        }
        let quality = if offer.remaining_loss <= demand.negligible_loss && !is_dropped {
            1.0
        } else {
            (delivered * QUALITY_STEPS).round() / QUALITY_STEPS
        };
        self.list.push(Column {
            stream,
            strategy: offer.strategy,
            delivered,
            quality,
            loads: offer.loads,
            cost: offer.cost,
            price: offer.cost / self.greatest_cost + DELAY_PRICE * offer.delay as f64 / lifetime,
        });
    }

    /// What a column, at a share of 1, puts on a path, in units of all demands.
    pub(super) fn load(&self, column: &Column, path: usize) -> f64 {
        let on_path = |(at, load): (usize, f64)| if at == path { load } else { 0.0 };
        let loads = column.loads.into_iter().flatten();
        self.weights[column.stream] * loads.map(on_path).sum::<f64>()
    }

    /// A column's part of the cost that is bounded by the budget.
    pub(super) fn budgeted(&self, column: &Column) -> f64 {
        self.weights[column.stream] * column.cost / self.greatest_cost
    }

    /// A column's part of the price that is made least. A demand without a rate is cheap, but not free.
    pub(super) fn priced(&self, column: &Column) -> f64 {
        self.weights[column.stream].max(LEAST_LOSS) * column.price
    }

    /// Priorities, the most important first.
    pub(super) fn levels(demands: &[Demand]) -> Vec<u8> {
        let mut levels: Vec<u8> = demands.iter().map(|demand| demand.priority).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// What a column adds to the quality of a level.
    pub(super) fn valued(&self, column: &Column, demands: &[Demand], level: u8) -> f64 {
        self.part(column, demands, level) * column.quality
    }

    /// What a column adds to the loss of a level.
    pub(super) fn lost(&self, column: &Column, demands: &[Demand], level: u8) -> f64 {
        self.part(column, demands, level) * (1.0 - column.quality)
    }

    /// The part of a column's demand in its level; 0 in others.
    fn part(&self, column: &Column, demands: &[Demand], level: u8) -> f64 {
        if demands[column.stream].priority == level {
            self.parts[column.stream]
        } else {
            0.0
        }
    }
}

/// Each demand's part of those of its priority; one without a rate counts, but hardly.
fn parts_of_levels(demands: &[Demand], rates: &[f64]) -> Vec<f64> {
    let part = |(demand, rate): (&Demand, &f64)| {
        let level = demands.iter().zip(rates);
        let level = level.filter(|(other, _)| other.priority == demand.priority);
        let total: f64 = level.map(|(_, rate)| rate.max(1.0)).sum();
        rate.max(1.0) / total
    };
    demands.iter().zip(rates).map(part).collect()
}

/// What a path loses, and how many packets in a row.
#[derive(Clone, Copy)]
struct Lossy {
    share: f64,
    burst_length: f64,
}

/// The redundancy of a code of full size, and the loss that remains with this much or less: the data go over a path that loses `first`, the
/// redundancy over one that loses `second`, or behind them over the same.
fn sizes(size: CodeSize, first: Lossy, second: Lossy, is_same: bool) -> (u8, impl Fn(u8) -> f64) {
    let data = size.data;
    let in_bursts = (first.burst_length > 1.0 || second.burst_length > 1.0).then(|| {
        let [first, second] = [first, second].map(|of| Losses::of(of.share, of.burst_length));
        let second = (!is_same).then_some(&second);
        let most = size.most_redundancy.min(u8::MAX - data);
        remaining_losses(data, &first, second, CODE_FAILURE, most)
    });
    let full = match &in_bursts {
        Some(remaining) => u8::try_from(remaining.len() - 1).unwrap_or(u8::MAX),
        None => starhaul_fec::redundancy_on_another_path(
            data,
            first.share,
            1.0,
            second.share,
            CODE_FAILURE,
            size.most_redundancy,
        ),
    };
    let remaining = move |redundancy: u8| match &in_bursts {
        Some(remaining) => remaining[usize::from(redundancy)],
        None => starhaul_fec::remaining_loss(data, redundancy, first.share, second.share),
    };
    (full, remaining)
}

/// A strategy before it is weighed.
#[derive(Clone, Copy)]
struct Offer {
    strategy: Strategy,
    remaining_loss: f64,
    loads: [Option<(usize, f64)>; 2],
    cost: f64,
    delay: u64,
}

/// No strategy sends more bits than this for each bit of data.
fn most_bits(demand: &Demand) -> f64 {
    let rate = |code: CodeSize| f64::from(code.most_redundancy) / f64::from(code.data.max(1));
    1.0 + demand.protection.code.map_or(1.0, rate).max(1.0)
}

fn loads(first: (usize, f64), second: (usize, f64)) -> [Option<(usize, f64)>; 2] {
    if first.0 == second.0 {
        [Some((first.0, first.1 + second.1)), None]
    } else {
        [Some(first), Some(second)]
    }
}

fn loss_of(path: &OfferedPath) -> f64 {
    if path.loss < LEAST_LOSS {
        0.0
    } else {
        path.loss
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
