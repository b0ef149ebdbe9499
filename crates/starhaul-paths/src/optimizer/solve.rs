//! The linear program, solved by a solver crate: the reference.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Solution, Variable};

use super::{
    columns::{Column, Columns},
    model::{OptimizerError, Problem},
    plan::Plan,
};

/// The solver's tolerances are about 10⁻⁷, and where little is lost, so much quality buys a lot of cost: it is given what is lost, in
/// units of a ten-thousandth.
const LOSS_SCALE: f64 = 1e4;
/// Rounding of what is lost, in that unit.
const LOSS_SLACK: f64 = 1e-7;

/// The best plan: one linear program for each priority, and one for the cost.
///
/// # Errors
/// A figure is out of range, or the solver failed.
pub fn optimize(problem: &Problem<'_>) -> Result<Plan, OptimizerError> {
    problem.check()?;
    let columns = Columns::of(problem);
    let mut ceilings: Vec<(u8, f64)> = Vec::new();
    let mut best = None;
    for level in Columns::levels(problem.demands) {
        let lost = |column: &Column| LOSS_SCALE * columns.lost(column, problem.demands, level);
        let (solution, variables) = stage(&columns, problem, &ceilings, lost)?;
        ceilings.push((level, solution.objective() + LOSS_SLACK));
        best = Some((solution, variables));
    }
    let Some(best) = best else {
        return Ok(Plan::of(&columns, &[]));
    };
    // Rounding may leave nothing at all below the ceilings: what was found last is as good then.
    let cheapest = stage(&columns, problem, &ceilings, |column| {
        columns.priced(column)
    });
    let (solution, variables) = cheapest.unwrap_or(best);
    let values: Vec<f64> = variables
        .into_iter()
        .map(|variable| solution.var_value(variable))
        .collect();
    Ok(Plan::of(&columns, &values))
}

/// Minimises `value` where each level loses no more than its ceiling.
fn stage(
    columns: &Columns,
    problem: &Problem<'_>,
    ceilings: &[(u8, f64)],
    value: impl Fn(&Column) -> f64,
) -> Result<(Solution, Vec<Variable>), OptimizerError> {
    let mut program = microlp::Problem::new(OptimizationDirection::Minimize);
    let list = &columns.list;
    let variables: Vec<Variable> = list
        .iter()
        .map(|column| program.add_var(value(column), (0.0, f64::INFINITY)))
        .collect();
    let mut row = |coefficient: &dyn Fn(&Column) -> f64, comparison, limit| {
        let mut sum = LinearExpr::empty();
        for (column, variable) in list.iter().zip(&variables) {
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
    Ok((solution, variables))
}
