//! The same plan in microseconds: a primal simplex with the inverse of its basis, which improves one objective after the other, each without
//! harm to those before it, and stops after a bounded number of pivots. Each step keeps the plan feasible, so that stopping early costs
//! quality or money, never bandwidth.
//!
//! Of each demand only the strategies of its greatest quality take part at first. Where they carry all that a priority offers, no best plan
//! has any other of its strategies; where they do not, the others take part, too. So most of them are never looked at.

use super::{
    columns::{Column, Columns},
    model::{Demand, OptimizerError, Problem},
    plan::Plan,
};

/// Pivots and steps below this are rounding.
const TOLERANCE: f64 = 1e-9;
/// Gains below this are.
const LEAST_GAIN: f64 = 1e-11;
/// Pivots for each row, at most: several times what random problems take.
const PIVOTS_PER_ROW: usize = 12;
/// After so many pivots that changed nothing, the first gain is taken instead of the greatest (Bland's rule): no cycles.
const MOST_IDLE_PIVOTS: usize = 8;

/// A plan that is feasible, and mostly the one of [`optimize`](super::optimize).
///
/// # Errors
/// A figure is out of range.
pub fn plan_quickly(problem: &Problem<'_>) -> Result<Plan, OptimizerError> {
    plan_quickly_in_bursts(problem, &[])
}

/// The same where each path, in the problem's order, loses so many packets in a row on average (a Gilbert–Elliott channel), for which codes
/// need more redundancy. Paths of which nothing is said, and those that lose at most one, lose each packet by itself.
///
/// # Errors
/// A figure is out of range.
pub fn plan_quickly_in_bursts(
    problem: &Problem<'_>,
    burst_lengths: &[f64],
) -> Result<Plan, OptimizerError> {
    problem.check()?;
    let columns = Columns::in_bursts(problem, burst_lengths);
    Ok(Plan::of(&columns, &values(&columns, problem.demands)))
}

/// The share of each column.
pub(super) fn values(columns: &Columns, demands: &[Demand]) -> Vec<f64> {
    let mut simplex = Simplex::of(columns);
    for level in Columns::levels(demands) {
        let value = |column: &Column| columns.valued(column, demands, level);
        simplex.improve(value);
        if !columns.is_whole(demands, level, &simplex.values()) {
            for (stream, demand) in demands.iter().enumerate() {
                if demand.priority == level {
                    simplex.add_others(stream);
                }
            }
            simplex.improve(value);
        }
        simplex.settle();
    }
    simplex.improve(|column| -columns.priced(column));
    simplex.values()
}

/// A column that may enter the basis, with what it takes of the rows.
#[derive(Clone, Copy)]
struct Candidate {
    /// Its place in the list of columns; behind them come what is left of each limit.
    at: usize,
    /// Rows: of its demand, of two paths, of the budget.
    cells: [(usize, f64); 4],
    /// What it adds to the present objective.
    value: f64,
}

/// A feasible basis. Each demand has a row, then each path that could be filled, then the budget.
struct Simplex<'a> {
    columns: &'a Columns,
    rows: usize,
    /// The row of each path that could be filled.
    row_of_path: Vec<Option<usize>>,
    /// Of the basis, row by row.
    inverse: Vec<f64>,
    /// The column that each row holds, its share, and what it adds to the present objective.
    basis: Vec<usize>,
    shares: Vec<f64>,
    basis_values: Vec<f64>,
    is_basic: Vec<bool>,
    candidates: Vec<Candidate>,
    /// Prices of the rows by each objective that is as good as it gets.
    settled: Vec<Vec<f64>>,
    idle: usize,
    pivots_left: usize,
}

impl<'a> Simplex<'a> {
    /// Everything is dropped, and nothing used.
    fn of(columns: &'a Columns) -> Self {
        let (list, streams) = (&columns.list, columns.streams);
        let slacks = columns.limits.len() + usize::from(columns.budget.is_some());
        let rows = streams + slacks;
        let mut row_of_path = vec![None; columns.paths];
        for (row, (path, _)) in (streams..).zip(&columns.limits) {
            row_of_path[*path] = Some(row);
        }
        let mut inverse = vec![0.0; rows * rows];
        for row in 0..rows {
            inverse[row * rows + row] = 1.0;
        }
        let limits = columns.limits.iter().map(|(_, limit)| *limit);
        let mut shares = vec![1.0; streams];
        shares.extend(limits.chain(columns.budget));
        let slack = |row: usize| list.len() + row - streams;
        let mut simplex = Self {
            columns,
            rows,
            row_of_path,
            inverse,
            basis: (0..rows).map(|row| slack(row.max(streams))).collect(),
            shares,
            basis_values: vec![0.0; rows],
            is_basic: vec![false; list.len() + slacks],
            candidates: Vec::with_capacity(list.len() + slacks),
            settled: Vec::new(),
            idle: 0,
            pivots_left: PIVOTS_PER_ROW * rows,
        };
        let mut first = vec![true; streams];
        for (at, column) in list.iter().enumerate() {
            // The first column of a demand drops it.
            let is_drop = std::mem::take(&mut first[column.stream]);
            if is_drop {
                simplex.basis[column.stream] = at;
            }
            if is_drop || columns.is_best(column) {
                let candidate = simplex.candidate(at, column);
                simplex.candidates.push(candidate);
            }
        }
        let slack_of = |row: usize| Candidate {
            at: slack(row),
            cells: [(row, 1.0), (row, 0.0), (row, 0.0), (row, 0.0)],
            value: 0.0,
        };
        simplex.candidates.extend((streams..rows).map(slack_of));
        for at in &simplex.basis {
            simplex.is_basic[*at] = true;
        }
        simplex
    }

    fn candidate(&self, at: usize, column: &Column) -> Candidate {
        let stream = column.stream;
        let mut cells = [(stream, 1.0), (stream, 0.0), (stream, 0.0), (stream, 0.0)];
        let weight = self.columns.weights[stream];
        let loads = column.loads.into_iter().flatten();
        let loads = loads.filter_map(|(path, load)| Some((self.row_of_path[path]?, weight * load)));
        for (cell, load) in cells[1..].iter_mut().zip(loads) {
            *cell = load;
        }
        if self.columns.budget.is_some() {
            cells[3] = (self.rows - 1, self.columns.budgeted(column));
        }
        Candidate {
            at,
            cells,
            value: 0.0,
        }
    }

    /// The strategies of a demand take part that did not; none that would harm an objective that is settled.
    fn add_others(&mut self, stream: usize) {
        let columns = self.columns;
        for (at, column) in columns.list.iter().enumerate() {
            let is_drop = column.strategy.first_path().is_none();
            if column.stream != stream || columns.is_best(column) || is_drop {
                continue;
            }
            let candidate = self.candidate(at, column);
            // Those objectives are of other priorities: it adds nothing to them.
            let mut settled = self.settled.iter();
            if settled.all(|prices| candidate.gain(prices) >= -LEAST_GAIN) {
                self.candidates.push(candidate);
            }
        }
    }

    /// Makes an objective as great as the candidates can.
    fn improve(&mut self, value: impl Fn(&Column) -> f64) {
        let list = &self.columns.list;
        let value_of = |at: usize| list.get(at).map_or(0.0, &value);
        for candidate in &mut self.candidates {
            candidate.value = value_of(candidate.at);
        }
        for (basic, at) in self.basis_values.iter_mut().zip(&self.basis) {
            *basic = value_of(*at);
        }
        while self.pivots_left > 0 {
            let prices = self.prices();
            let Some(entering) = self.entering(&prices) else {
                return;
            };
            let takes = self.takes(&entering);
            let Some(leaving) = self.leaving(&takes) else {
                return;
            };
            let moved = self.shares[leaving] > TOLERANCE;
            self.idle = if moved { 0 } else { self.idle + 1 };
            self.pivots_left -= 1;
            self.pivot(leaving, &entering, &takes);
        }
    }

    /// What was improved last is not to become worse: candidates that would harm it take no part any more.
    fn settle(&mut self) {
        let prices = self.prices();
        let is_basic = &self.is_basic;
        self.candidates
            .retain(|candidate| is_basic[candidate.at] || candidate.gain(&prices) >= -LEAST_GAIN);
        self.settled.push(prices);
    }

    /// What one more of each row would add to the present objective.
    fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.rows];
        let rows = self.inverse.chunks_exact(self.rows.max(1));
        for (row, value) in rows.zip(&self.basis_values) {
            if *value != 0.0 {
                for (price, cell) in prices.iter_mut().zip(row) {
                    *price += value * cell;
                }
            }
        }
        prices
    }

    /// The candidate that gains most, or the first that gains.
    fn entering(&self, prices: &[f64]) -> Option<Candidate> {
        let takes_first = self.idle > MOST_IDLE_PIVOTS;
        let mut best = None;
        let mut most = LEAST_GAIN;
        for candidate in &self.candidates {
            let gain = candidate.gain(prices);
            if gain > LEAST_GAIN && gain >= most && !self.is_basic[candidate.at] {
                (best, most) = (Some(*candidate), gain);
                if takes_first {
                    break;
                }
            }
        }
        best
    }

    /// What the candidate takes of each column of the basis.
    fn takes(&self, candidate: &Candidate) -> Vec<f64> {
        let rows = self.inverse.chunks_exact(self.rows.max(1));
        let of_row = |row: &[f64]| {
            let cells = candidate.cells.iter();
            cells.map(|(at, cell)| row[*at] * cell).sum::<f64>()
        };
        rows.map(of_row).collect()
    }

    /// The row that is used up first when a column grows that takes so much of each; of several the one with the largest pivot.
    fn leaving(&self, takes: &[f64]) -> Option<usize> {
        let mut best: Option<(f64, f64, usize)> = None;
        for (row, (pivot, share)) in takes.iter().zip(&self.shares).enumerate() {
            if *pivot <= TOLERANCE {
                continue;
            }
            let room = (share / pivot).max(0.0);
            let is_better = best.is_none_or(|(least, largest, _)| {
                room < least - TOLERANCE || room < least + TOLERANCE && *pivot > largest
            });
            if is_better {
                best = Some((room, *pivot, row));
            }
        }
        best.map(|(_, _, row)| row)
    }

    fn pivot(&mut self, leaving: usize, entering: &Candidate, takes: &[f64]) {
        let pivot = takes[leaving];
        let share = self.shares[leaving] / pivot;
        let (before, rest) = self.inverse.split_at_mut(leaving * self.rows);
        let (own, after) = rest.split_at_mut(self.rows);
        for cell in own.iter_mut() {
            *cell /= pivot;
        }
        let others = before
            .chunks_exact_mut(self.rows)
            .chain(after.chunks_exact_mut(self.rows));
        let factors = takes.iter().enumerate().filter(|(row, _)| *row != leaving);
        for (other, (row, factor)) in others.zip(factors) {
            if *factor != 0.0 {
                for (cell, own) in other.iter_mut().zip(&*own) {
                    *cell -= factor * own;
                }
                self.shares[row] -= factor * share;
            }
        }
        self.shares[leaving] = share;
        self.is_basic[self.basis[leaving]] = false;
        self.is_basic[entering.at] = true;
        self.basis[leaving] = entering.at;
        self.basis_values[leaving] = entering.value;
    }

    /// The share of each column.
    fn values(&self) -> Vec<f64> {
        let mut values = vec![0.0; self.columns.list.len()];
        for (at, share) in self.basis.iter().zip(&self.shares) {
            if let Some(value) = values.get_mut(*at) {
                *value = share.max(0.0);
            }
        }
        values
    }
}

impl Candidate {
    /// What one of it adds to an objective at these prices of the rows.
    fn gain(&self, prices: &[f64]) -> f64 {
        let cells = self.cells.iter();
        let price: f64 = cells.map(|(row, cell)| prices[*row] * cell).sum();
        self.value - price
    }
}
