//! A study as it was asked for: its runs, which are tried, made in threads and judged.

use std::{sync::OnceLock, time::Instant};

use starhaul_plot::Table;

use super::Job;
use crate::{
    Error,
    kit::{
        Context, Found, Plan, Progress, Target,
        judged::Judged,
        parallel::{cores, in_threads, span},
        report::Results,
        target,
    },
};

/// So many of something.
fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// How many runs of this kind are made at a time.
fn threads(is_real: bool) -> usize {
    match is_real {
        true => 1,
        false => cores(),
    }
}

/// A study as it was asked for.
pub(super) struct StudyPlan {
    /// Results without rows.
    results: Results,
    /// What the rows are held to if they are to be judged, each with the number of its part.
    targets: Option<Vec<(usize, Target)>>,
    /// Each with the number of its part.
    jobs: Vec<(usize, Job)>,
    /// The runs that were made to learn how long the others take, with their numbers. They count.
    tried: OnceLock<Vec<Tried>>,
}

/// What came of a run, with its number.
type Tried = (usize, Result<Table, Error>);

impl StudyPlan {
    /// Creates one that has made no run. `jobs` and `targets` have the number of their part in `results`, whose tables are empty.
    pub(super) fn new(
        results: Results,
        targets: Option<Vec<(usize, Target)>>,
        jobs: Vec<(usize, Job)>,
    ) -> Self {
        Self {
            results,
            targets,
            jobs,
            tried: OnceLock::new(),
        }
    }

    /// Makes the first run of each part, of those in real time or of the others: all at once if all will run so. What came of them, and
    /// how many seconds the others take, one after the other.
    fn try_firsts(&self, is_real: bool) -> (Vec<Tried>, f64) {
        let first = |part| {
            let mut jobs = self.jobs.iter();
            jobs.position(|(of, job)| *of == part && job.is_real == is_real)
        };
        let firsts: Vec<usize> = (0..self.results.rows.len()).filter_map(first).collect();
        let timed = |number: &usize| {
            let began = Instant::now();
            let found = self.jobs[*number].1.run();
            (found, began.elapsed().as_secs_f64())
        };
        let weight = |number: &usize| self.jobs[*number].1.weight;
        let timed = in_threads(threads(is_real), &firsts, weight, timed, &mut |_| {});
        let (mut left, mut tried) = (0.0, Vec::new());
        for (number, (found, seconds)) in firsts.into_iter().zip(timed) {
            let (part, first) = &self.jobs[number];
            let others = self.jobs.iter().filter(|(of, _)| of == part);
            let weights: f64 = others.map(|(_, job)| job.weight / first.weight).sum();
            left += (weights - 1.0) * seconds;
            tried.push((number, found));
        }
        (tried, left)
    }

    /// What came of each run, in their order; those that were tried count.
    fn run_all(&self, progress: &mut dyn FnMut(Progress)) -> Vec<Result<Table, Error>> {
        let tried = self.tried.get().map_or(&[][..], Vec::as_slice);
        let known = |number: usize| tried.iter().find(|(of, _)| *of == number);
        let weight = |number: &usize| match known(*number) {
            Some(_) => 0.0,
            None => self.jobs[*number].1.weight,
        };
        let work = |number: &usize| match known(*number) {
            Some((_, Ok(table))) => Ok(table.clone()),
            _ => self.jobs[*number].1.run(),
        };
        let numbers: Vec<usize> = (0..self.jobs.len()).collect();
        let total: f64 = numbers.iter().map(weight).sum();
        let (began, mut done, mut found) = (Instant::now(), 0.0, Vec::new());
        for is_real in [false, true] {
            let these = numbers.iter().copied();
            let these: Vec<usize> = these
                .filter(|number| self.jobs[*number].1.is_real == is_real)
                .collect();
            let share = these.iter().map(weight).sum::<f64>() / total.max(f64::MIN_POSITIVE);
            let mut tell = |of: Progress| {
                progress(Progress {
                    done: done + share * of.done,
                    elapsed: began.elapsed(),
                });
            };
            let results = in_threads(threads(is_real), &these, weight, work, &mut tell);
            found.extend(these.into_iter().zip(results));
            done += share;
        }
        found.sort_by_key(|(number, _)| *number);
        found.into_iter().map(|(_, table)| table).collect()
    }
}

impl Plan for StudyPlan {
    fn skipped(&self) -> &[String] {
        &self.results.notes
    }

    fn describe(&self) -> String {
        let mut tried = Vec::new();
        let mut all = Vec::new();
        for is_real in [false, true] {
            let count = self.jobs.iter().filter(|(_, job)| job.is_real == is_real);
            let count = count.count();
            if count == 0 {
                continue;
            }
            let (found, left) = self.try_firsts(is_real);
            tried.extend(found);
            let runs = plural(count, "run");
            all.push(match is_real {
                true => format!(
                    "{runs} in real time, one after the other: about {}",
                    span(left)
                ),
                false => format!(
                    "{runs} in virtual time: about {} on {}",
                    span(left / f64::from(u32::try_from(cores()).unwrap_or(1))),
                    plural(cores(), "core"),
                ),
            });
        }
        // A second call gives the second measurement.
        let _ = self.tried.set(tried);
        all.join("; ")
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let found = self.run_all(progress);
        let mut results = self.results.clone();
        results.command = context.command.to_owned();
        let mut failed = Vec::new();
        for ((part, job), table) in self.jobs.iter().zip(found) {
            let rows = &mut results.rows[*part];
            match table {
                Ok(table) => rows.table.append(table),
                Err(why) if why.ends_all() => return Err(why),
                Err(why) => failed.push((rows.part, job.seed, why)),
            }
        }
        // What is left counts, if there is any.
        if failed.len() == self.jobs.len()
            && let Some((.., why)) = failed.pop()
        {
            return Err(why);
        }
        let notes = failed.into_iter().map(|(part, seed, why)| {
            format!("failed: a run of {part} with seed {seed}, which does not count: {why}")
        });
        results.notes.extend(notes);
        let goals = self.targets.as_ref().map(|targets| {
            target::goals(targets.iter().map(|(part, target)| {
                let rows = &results.rows[*part];
                (rows.part, target, &rows.table)
            }))
        });
        Ok(Box::new(Judged { results, goals }))
    }
}
