//! The same plan in microseconds: a primal simplex on a small dense tableau, whose objective is a list of rows compared
//! lexicographically, and which stops after a bounded number of pivots. Each step keeps the plan feasible, so that stopping early costs
//! quality or money, never bandwidth.

use super::{
    columns::Columns,
    model::{OptimizerError, Problem},
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
    problem.check()?;
    let columns = Columns::of(problem);
    let mut tableau = Tableau::of(&columns, problem);
    let most = PIVOTS_PER_ROW * tableau.basis.len();
    let mut idle = 0;
    for _ in 0..most {
        let Some(entering) = tableau.entering(idle > MOST_IDLE_PIVOTS) else {
            break;
        };
        let Some(leaving) = tableau.leaving(entering) else {
            break;
        };
        let moved = tableau.at(leaving, tableau.width - 1) > TOLERANCE;
        idle = if moved { 0 } else { idle + 1 };
        tableau.pivot(leaving, entering);
    }
    Ok(Plan::of(&columns, &tableau.values(columns.list.len())))
}

/// Constraint rows, then objective rows, the most important first; the last column is what is left of each limit.
struct Tableau {
    cells: Vec<f64>,
    width: usize,
    /// The column that each constraint row holds.
    basis: Vec<usize>,
    objectives: usize,
}

impl Tableau {
    /// Everything is dropped, and nothing used.
    fn of(columns: &Columns, problem: &Problem<'_>) -> Self {
        let levels = Columns::levels(problem.demands);
        let list = &columns.list;
        let slacks = columns.limits.len() + usize::from(columns.budget.is_some());
        let rows = columns.streams + slacks;
        let objectives = levels.len() + 1;
        let width = list.len() + slacks + 1;
        let mut tableau = Self {
            cells: vec![0.0; (rows + objectives) * width],
            width,
            basis: vec![0; rows],
            objectives,
        };
        let mut basis = vec![None; columns.streams];
        for (at, column) in list.iter().enumerate() {
            tableau.set(column.stream, at, 1.0);
            // The first column of a demand drops it.
            basis[column.stream].get_or_insert(at);
            for (row, (path, _)) in (columns.streams..).zip(&columns.limits) {
                tableau.set(row, at, columns.load(column, *path));
            }
            if columns.budget.is_some() {
                tableau.set(rows - 1, at, columns.budgeted(column));
            }
            for (row, level) in (rows..).zip(&levels) {
                let value = columns.valued(column, problem.demands, *level);
                tableau.set(row, at, value);
            }
            tableau.set(rows + levels.len(), at, -columns.priced(column));
        }
        for (row, drop) in basis.into_iter().enumerate() {
            tableau.basis[row] = drop.unwrap_or(0);
            tableau.set(row, width - 1, 1.0);
        }
        let limits = columns.limits.iter().map(|(_, limit)| *limit);
        for (slack, limit) in limits.chain(columns.budget).enumerate() {
            let row = columns.streams + slack;
            tableau.basis[row] = list.len() + slack;
            tableau.set(row, list.len() + slack, 1.0);
            tableau.set(row, width - 1, limit);
        }
        tableau
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.cells[row * self.width + column]
    }

    fn set(&mut self, row: usize, column: usize, value: f64) {
        self.cells[row * self.width + column] = value;
    }

    /// A column that improves the first objective that can be improved without harm to those before it.
    fn entering(&self, first: bool) -> Option<usize> {
        let rows = self.basis.len();
        for objective in rows..rows + self.objectives {
            let harmless =
                |column: &usize| (rows..objective).all(|row| self.at(row, *column) >= -LEAST_GAIN);
            let gain = |column: usize| self.at(objective, column);
            let mut gains = (0..self.width - 1)
                .filter(|column| gain(*column) > LEAST_GAIN)
                .filter(harmless);
            let best = if first {
                gains.next()
            } else {
                gains.max_by(|a, b| gain(*a).total_cmp(&gain(*b)))
            };
            if best.is_some() {
                return best;
            }
        }
        None
    }

    /// The row that is used up first when the column grows; of several the one with the largest pivot.
    fn leaving(&self, entering: usize) -> Option<usize> {
        let mut best: Option<(f64, f64, usize)> = None;
        for row in 0..self.basis.len() {
            let pivot = self.at(row, entering);
            if pivot <= TOLERANCE {
                continue;
            }
            let room = (self.at(row, self.width - 1) / pivot).max(0.0);
            let is_better = best.is_none_or(|(least, largest, _)| {
                room < least - TOLERANCE || room < least + TOLERANCE && pivot > largest
            });
            if is_better {
                best = Some((room, pivot, row));
            }
        }
        best.map(|(_, _, row)| row)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let width = self.width;
        let pivot = self.at(row, column);
        let (before, rest) = self.cells.split_at_mut(row * width);
        let (own, after) = rest.split_at_mut(width);
        for cell in own.iter_mut() {
            *cell /= pivot;
        }
        for other in before
            .chunks_exact_mut(width)
            .chain(after.chunks_exact_mut(width))
        {
            let factor = other[column];
            if factor != 0.0 {
                for (cell, own) in other.iter_mut().zip(&*own) {
                    *cell -= factor * own;
                }
            }
        }
        self.basis[row] = column;
    }

    /// The first `count` columns' values.
    fn values(&self, count: usize) -> Vec<f64> {
        let mut values = vec![0.0; count];
        for (row, column) in self.basis.iter().enumerate() {
            if let Some(value) = values.get_mut(*column) {
                *value = self.at(row, self.width - 1).max(0.0);
            }
        }
        values
    }
}
