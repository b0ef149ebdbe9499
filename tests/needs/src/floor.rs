//! What a benchmark must reach at least.

use std::env;

/// The share of its figures that a benchmark must reach, by `STARHAUL_BENCH_FLOOR`, and what it did not. Without that variable nothing need
/// be reached: a busy computer is slow.
#[derive(Debug)]
pub struct Floor {
    /// Above 0, at most 1.
    share: Option<f64>,
    missed: Vec<String>,
}

impl Floor {
    /// As the environment says.
    ///
    /// # Panics
    /// `STARHAUL_BENCH_FLOOR` is no share from 0.01 to 1.
    pub fn from_env() -> Self {
        Self::of(env::var("STARHAUL_BENCH_FLOOR").ok().as_deref())
    }

    fn of(text: Option<&str>) -> Self {
        let share = text.map(|text| {
            let share = text.parse::<f64>().ok();
            let share = share.filter(|share| (0.01..=1.0).contains(share));
            share.unwrap_or_else(|| panic!("STARHAUL_BENCH_FLOOR is a share up to 1: {text:?}"))
        });
        Self {
            share,
            missed: Vec::new(),
        }
    }

    /// A figure of which more is better: it must be the share of `wanted` at least.
    pub fn at_least(&mut self, what: &str, figure: f64, wanted: f64) {
        let Some(least) = self.share.map(|share| share * wanted) else {
            return;
        };
        if figure.is_nan() || figure < least {
            let missed = format!("{what}: {figure:.3}, which must be at least {least:.3}");
            self.missed.push(missed);
        }
    }

    /// A figure of which less is better: it may be `wanted` divided by the share at most.
    pub fn at_most(&mut self, what: &str, figure: f64, wanted: f64) {
        let Some(most) = self.share.map(|share| wanted / share) else {
            return;
        };
        if figure.is_nan() || figure > most {
            let missed = format!("{what}: {figure:.3}, which may be at most {most:.3}");
            self.missed.push(missed);
        }
    }

    /// Ends the benchmark, with an error if a figure was not reached.
    ///
    /// # Panics
    /// A figure was not reached.
    pub fn finish(self) {
        assert!(
            self.missed.is_empty(),
            "below the floor:\n{}",
            self.missed.join("\n")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_below_the_share_are_named_and_no_others() {
        let mut floor = Floor::of(Some("0.5"));
        floor.at_least("rate", 5.0, 10.0);
        floor.at_most("time", 4.0, 2.0);
        assert!(floor.missed.is_empty(), "{:?}", floor.missed);
        floor.at_least("low rate", 4.9, 10.0);
        floor.at_most("long time", 4.1, 2.0);
        floor.at_least("no rate", f64::NAN, 10.0);
        floor.at_most("no time", f64::NAN, 2.0);
        let names = floor.missed.iter().map(|missed| missed.split(':').next());
        let names: Vec<_> = names.map(Option::unwrap).collect();
        assert_eq!(names, ["low rate", "long time", "no rate", "no time"]);
    }

    #[test]
    fn without_a_share_nothing_need_be_reached() {
        let mut floor = Floor::of(None);
        floor.at_least("rate", 0.0, 10.0);
        floor.at_most("time", 1e9, 2.0);
        floor.finish();
    }

    #[test]
    #[should_panic(expected = "low rate: 1.000, which must be at least 5.000")]
    fn a_benchmark_below_its_floor_fails() {
        let mut floor = Floor::of(Some("0.5"));
        floor.at_least("low rate", 1.0, 10.0);
        floor.finish();
    }

    #[test]
    #[should_panic(expected = "STARHAUL_BENCH_FLOOR is a share up to 1: \"50%\"")]
    fn a_floor_that_is_no_share_is_refused() {
        Floor::of(Some("50%"));
    }
}
