//! The linear program, solved by a solver crate: the reference.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection};

use super::{
    columns::{Column, Columns},
    model::{OptimizerError, Problem},
    plan::Plan,
    quick,
};

/// The solver's tolerances are about 10⁻⁷, and where little is lost, so much quality buys a lot of cost: it is given what is lost, in
/// units of a ten-thousandth.
const LOSS_SCALE: f64 = 1e4;
/// Rounding of what is lost, in that unit.
const LOSS_SLACK: f64 = 1e-7;

/// The best plan: one linear program for each priority, and one for the cost.
///
/// A priority whose demands all get the greatest quality that any strategy gives them needs none of its own: nothing is better, and their other
/// strategies are left out. The quick plan tells which these are, and the linear program for the cost whether that is true.
///
/// # Errors
/// A figure is out of range, or the solver failed.
pub fn optimize(problem: &Problem<'_>) -> Result<Plan, OptimizerError> {
    optimize_in_bursts(problem, &[])
}

/// The same as [`plan_quickly_in_bursts`](super::plan_quickly_in_bursts) has it.
pub(super) fn optimize_in_bursts(
    problem: &Problem<'_>,
    burst_lengths: &[f64],
) -> Result<Plan, OptimizerError> {
    problem.check()?;
    let columns = Columns::in_bursts(problem, burst_lengths);
    if problem.demands.is_empty() {
        return Ok(Plan::of(&columns, &[]));
    }
    let shares = quick::values(&columns, problem.demands);
    let levels = Columns::levels(problem.demands).into_iter();
    let is_whole = |level: &u8| columns.is_whole(problem.demands, *level, &shares);
    let whole: Vec<u8> = levels.filter(is_whole).collect();
    let values = match solve(&columns, problem, &whole) {
        // A plan that is feasible but for rounding proves nothing.
        Err(_) if !whole.is_empty() => solve(&columns, problem, &[])?,
        values => values?,
    };
    Ok(Plan::of(&columns, &values))
}

/// The share of each column, where the levels in `whole` get all that there is.
fn solve(
    columns: &Columns,
    problem: &Problem<'_>,
    whole: &[u8],
) -> Result<Vec<f64>, OptimizerError> {
    let is_useful = |column: &Column| {
        let level = problem.demands[column.stream].priority;
        !whole.contains(&level) || columns.is_best(column)
    };
    let list = columns.list.iter().enumerate();
    let useful: Vec<_> = list.filter(|(_, column)| is_useful(column)).collect();
    let mut ceilings: Vec<(u8, f64)> = Vec::new();
    let mut best = None;
    for level in Columns::levels(problem.demands) {
        if whole.contains(&level) {
            continue;
        }
        let lost = |column: &Column| LOSS_SCALE * columns.lost(column, problem.demands, level);
        let (least, values) = stage(columns, problem, &useful, &ceilings, lost)?;
        ceilings.push((level, least + LOSS_SLACK));
        best = Some(values);
    }
    let cheapest = stage(columns, problem, &useful, &ceilings, |column| {
        columns.priced(column)
    });
    // Rounding may leave nothing at all below the ceilings: what was found last is as good then.
    match (cheapest, best) {
        (Ok((_, values)), _) | (Err(_), Some(values)) => Ok(values),
        (Err(error), None) => Err(error),
    }
}

/// Minimises `value` over the `useful` columns, where each level loses no more than its ceiling: the least, and the share of each column.
fn stage(
    columns: &Columns,
    problem: &Problem<'_>,
    useful: &[(usize, &Column)],
    ceilings: &[(u8, f64)],
    value: impl Fn(&Column) -> f64,
) -> Result<(f64, Vec<f64>), OptimizerError> {
    let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
    let variables = useful
        .iter()
        .map(|(_, column)| program.add_var(value(column), (0.0, f64::INFINITY)));
    let variables: Vec<microlp::Variable> = variables.collect();
    let mut row = |coefficient: &dyn Fn(&Column) -> f64, comparison, limit| {
        let mut sum = LinearExpr::empty();
        for ((_, column), variable) in useful.iter().zip(&variables) {
            let coefficient = coefficient(column);
            if coefficient != 0.0 {
                sum.add(*variable, coefficient);
            }
        }
        program.add_constraint(sum, comparison, limit);
    };
    for stream in 0..columns.streams {
        let all = |column: &Column| f64::from(u8::from(column.stream == stream));
        row(&all, ComparisonOp::Eq, 1.0);
    }
    for &(path, limit) in &columns.limits {
        let load = |column: &Column| columns.load(column, path);
        row(&load, ComparisonOp::Le, limit);
    }
    if let Some(budget) = columns.budget {
        row(&|column| columns.budgeted(column), ComparisonOp::Le, budget);
    }
    for &(level, ceiling) in ceilings {
        let lost = |column: &Column| LOSS_SCALE * columns.lost(column, problem.demands, level);
        row(&lost, ComparisonOp::Le, ceiling);
    }
    let failed = |error: &dyn std::fmt::Display| OptimizerError::Solver(error.to_string());
    let outcome = program.solve().map_err(|error| failed(&error))?;
    let solution = outcome
        .into_solution()
        .map_err(|_| failed(&"it was interrupted"))?;
    let mut values = vec![0.0; columns.list.len()];
    for ((at, _), variable) in useful.iter().zip(variables) {
        values[*at] = solution.var_value(variable);
    }
    Ok((solution.objective(), values))
}
