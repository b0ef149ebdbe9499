//! A comparison in real time: the systems that were asked for and that this computer has, their runs one after the other, and what is
//! to be said of them. What is offered and over which links is up to the experiment.

use std::time::{Duration, Instant};

use starhaul_net::{run_first, sharpen_timers};
use starhaul_replay::{Hosts, ReplayLink};

use super::{BlockSystem, all};
use crate::{
    Error,
    kit::{
        Context, Progress,
        parallel::{in_threads, span},
        repeats::{Runs, plural},
    },
    realtime::{Bench, Measured},
};

/// What is compared, before it begins.
pub(crate) struct Comparison {
    systems: Vec<Box<dyn BlockSystem>>,
    /// Why others are left out, one sentence each.
    skipped: Vec<String>,
    repeats: Repeats,
}

/// How often each system runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeats {
    /// At each point.
    pub(crate) runs: u32,
    /// So many systems at once, each over links of its own.
    pub(crate) at_once: u8,
    /// Of the first run; others have those that follow.
    pub(crate) seed: u64,
}

/// A run that counts.
pub(crate) struct Run<'a, M> {
    pub(crate) system: &'a dyn BlockSystem,
    /// Place of its point.
    pub(crate) point: usize,
    pub(crate) seed: u64,
    pub(crate) figures: M,
}

/// Figures of the runs that count, each with its seed, and what is to be said of all.
type Figures<M> = (Vec<(u64, M)>, Vec<String>);

/// All runs of a system at a point.
struct Job<'a, P> {
    system: &'a dyn BlockSystem,
    place: usize,
    title: &'a str,
    point: &'a P,
}

/// The systems of these names, of which a mode's is that of ours with this protection; without a name all for so many streams but those
/// `beside`.
///
/// # Errors
/// [`Error::Settings`] when there is none of a name.
pub(crate) fn chosen(
    names: &[&str],
    beside: &[&str],
    streams: usize,
) -> Result<Vec<Box<dyn BlockSystem>>, Error> {
    let all = all();
    let is_named = |system: &dyn BlockSystem, name: &str| {
        system.name() == name || system.alias() == Some(name)
    };
    let has_none = |name: &&&str| !all.iter().any(|system| is_named(system.as_ref(), name));
    if let Some(unknown) = names.iter().find(has_none) {
        let known = known().join(", ");
        let modes = all.iter().filter_map(|system| system.alias());
        let modes = modes.collect::<Vec<_>>().join(", ");
        return Err(Error::Settings(format!(
            "--systems: {unknown:?} is none of {known}, and no mode of ours: {modes}"
        )));
    }
    let is_chosen = |system: &dyn BlockSystem| match names.is_empty() {
        true => !beside.contains(&system.name()) && has_place(system, streams),
        false => names.iter().any(|name| is_named(system, name)),
    };
    let chosen = all.into_iter().filter(|system| is_chosen(system.as_ref()));
    Ok(chosen.collect())
}

/// The names of all systems.
pub(crate) fn known() -> Vec<&'static str> {
    all().iter().map(|system| system.name()).collect()
}

/// Joins two hosts by these links for `work`, which has the priority of what carries its blocks.
///
/// # Errors
/// The system lets us make no network, and those of `work`.
pub(crate) fn between<T: Send>(
    bench: &Bench,
    links: &[ReplayLink],
    work: impl FnOnce(&Hosts) -> Result<T, Error> + Send,
) -> Result<Measured<T>, Error> {
    bench.between(links, |hosts| {
        std::thread::scope(|scope| {
            let application = || {
                sharpen_timers();
                let _ = run_first();
                work(hosts)
            };
            let thread = scope.spawn(application).join();
            thread.unwrap_or_else(|_| Err(Error::Failed("a run panicked".to_owned())))
        })
    })
}

impl Comparison {
    /// Of those of `asked` that this computer has and that have a meaning for so many streams.
    ///
    /// # Errors
    /// [`Error::Settings`] when none is left.
    pub(crate) fn new(
        asked: Vec<Box<dyn BlockSystem>>,
        streams: usize,
        repeats: Repeats,
    ) -> Result<Self, Error> {
        let mut skipped = Vec::new();
        let mut systems = Vec::new();
        for system in asked {
            match unable(system.as_ref(), streams) {
                None => systems.push(system),
                Some(why) => skipped.push(why),
            }
        }
        if systems.is_empty() {
            return Err(Error::Settings(format!(
                "nothing to run: {}\nname others with --systems, for example starhaul",
                skipped.join("\n")
            )));
        }
        Ok(Self {
            systems,
            skipped,
            repeats,
        })
    }

    pub(crate) fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The systems that run.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.systems.iter().map(|system| system.name())
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.repeats.seed
    }

    /// What will run at so many points, and how long that takes if a run of a system takes so long.
    pub(crate) fn describe(&self, points: usize, run: Duration) -> String {
        let Repeats { runs, at_once, .. } = self.repeats;
        let names: Vec<&str> = self.names().collect();
        let rounds = (points * self.systems.len()).div_ceil(usize::from(at_once.max(1)));
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        let each = match points {
            1 => "each".to_owned(),
            points => format!("each at {points} points"),
        };
        format!(
            "{}, {} of {each}: {} in real time, {at_once} at once",
            names.join(", "),
            plural(runs),
            span(
                run.saturating_mul(rounds.saturating_mul(runs))
                    .as_secs_f64()
            ),
        )
    }

    /// Runs every system at each point by `run`. A point comes with what notes say behind a system's name.
    ///
    /// Returns the runs that count, and what is to be said, systems that were left out first.
    ///
    /// # Errors
    /// Those of `run` that end all, and of a bench that is not there.
    pub(crate) fn run<'a, P: Sync, M: Clone + Send>(
        &'a self,
        points: &'a [(String, P)],
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
        run: impl Fn(&Bench, &dyn BlockSystem, &P, u64) -> Result<Measured<M>, Error> + Sync,
    ) -> Result<(Vec<Run<'a, M>>, Vec<String>), Error> {
        let bench = (context.bench)()?;
        let jobs = self.jobs(points);
        let work = |job: &Job<'_, P>| {
            let name = format!("{}{}", job.system.name(), job.title);
            self.repeated(&name, |seed| run(&bench, job.system, job.point, seed))
        };
        let began = Instant::now();
        let found: Vec<Result<Figures<M>, Error>> = match self.repeats.at_once {
            // An ordinary user can be given namespaces only while this process has one thread.
            0 | 1 => {
                let all = jobs.len() as f64;
                let mut found = Vec::new();
                for (number, job) in (1u32..).zip(&jobs) {
                    found.push(work(job));
                    progress(Progress {
                        done: f64::from(number) / all,
                        elapsed: began.elapsed(),
                    });
                }
                found
            }
            threads => in_threads(threads.into(), &jobs, |_| 1.0, work, progress),
        };
        let mut notes = self.skipped.clone();
        let mut runs = Vec::new();
        for (job, found) in jobs.iter().zip(found) {
            let (valid, said) = found?;
            notes.extend(said);
            runs.extend(valid.into_iter().map(|(seed, figures)| Run {
                system: job.system,
                point: job.place,
                seed,
                figures,
            }));
        }
        Ok((runs, notes))
    }

    /// All systems at one point after the other, so that they have the computer of one hour.
    fn jobs<'a, P>(&'a self, points: &'a [(String, P)]) -> Vec<Job<'a, P>> {
        let of_point = |(place, (title, point)): (usize, &'a (String, P))| {
            let systems = self.systems.iter();
            systems.map(move |system| Job {
                system: system.as_ref(),
                place,
                title: title.as_str(),
                point,
            })
        };
        points.iter().enumerate().flat_map(of_point).collect()
    }

    /// All runs of what is called `name`.
    fn repeated<M: Clone>(
        &self,
        name: &str,
        run: impl FnMut(u64) -> Result<Measured<M>, Error>,
    ) -> Result<Figures<M>, Error> {
        let Repeats { runs, seed, .. } = self.repeats;
        let seeds = (0..runs).map(|run| seed.wrapping_add(run.into()));
        let runs = Runs::of(seeds, run)?;
        let notes = runs.missing(name).into_iter().chain(runs.not_counted(name));
        let notes = notes.collect();
        Ok((runs.valid, notes))
    }
}

/// Why a system has no part in a comparison of so many streams, if so.
fn unable(system: &dyn BlockSystem, streams: usize) -> Option<String> {
    match has_place(system, streams) {
        true => system.missing(),
        false => Some(format!(
            "skipped: {}, because it divides streams over the paths, and here is one alone",
            system.name()
        )),
    }
}

/// Whether a system has a meaning for so many streams.
fn has_place(system: &dyn BlockSystem, streams: usize) -> bool {
    streams > 1 || !system.divides_streams()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(names: &[&str], streams: usize) -> Result<Comparison, Error> {
        let repeats = Repeats {
            runs: 3,
            at_once: 1,
            seed: 1,
        };
        Comparison::new(chosen(names, &[], streams)?, streams, repeats)
    }

    #[test]
    fn a_system_that_fails_in_its_second_run_keeps_the_first() {
        let comparison = comparison(&["starhaul"], 1).unwrap();
        let mut seeds = Vec::new();
        let run = |seed| {
            seeds.push(seed);
            match seeds.len() {
                2 => Err(Error::io("no room")(std::io::ErrorKind::Other.into())),
                _ => Ok(Measured {
                    metrics: "figures",
                    valid: true,
                }),
            }
        };
        let (valid, notes) = comparison.repeated("starhaul", run).unwrap();
        assert_eq!((valid, seeds), (vec![(1, "figures")], vec![1, 2]));
        assert!(
            notes[0].starts_with("failed: starhaul, seed 2: no room"),
            "{notes:?}"
        );
        let interrupted = |_| Err::<Measured<()>, _>(Error::Interrupted("by a signal".to_owned()));
        assert!(comparison.repeated("starhaul", interrupted).is_err());
    }

    #[test]
    fn every_system_runs_at_a_point_before_the_next() {
        let comparison = comparison(&["starhaul", "mpquic"], 3).unwrap();
        let points = [(" here".to_owned(), 1), (" there".to_owned(), 2)];
        let jobs = comparison.jobs(&points);
        let jobs: Vec<_> = jobs
            .iter()
            .map(|job| (job.system.name(), job.title, *job.point, job.place))
            .collect();
        assert_eq!(
            jobs,
            [
                ("starhaul", " here", 1, 0),
                ("mpquic", " here", 1, 0),
                ("starhaul", " there", 2, 1),
                ("mpquic", " there", 2, 1),
            ]
        );
        let said = comparison.describe(points.len(), Duration::from_secs(10));
        assert!(
            said.starts_with("starhaul, mpquic, 3 runs of each at 2 points: 2 min"),
            "{said}"
        );
    }

    #[test]
    fn what_divides_streams_is_no_system_for_one() {
        let comparison = comparison(&["starhaul", "srt-apart", "rist-apart"], 1).unwrap();
        let [srt, rist] = comparison.skipped() else {
            panic!("{:?}", comparison.skipped())
        };
        for (said, name) in [(srt, "srt-apart"), (rist, "rist-apart")] {
            let begin = format!("skipped: {name}, because it divides streams");
            assert!(said.starts_with(&begin), "{said}");
        }
        assert!(self::comparison(&["srt-apart"], 1).is_err());
    }

    #[test]
    fn without_names_all_run_but_those_beside_and_those_without_a_meaning() {
        let names = |asked: &[&str], streams| -> Vec<&'static str> {
            let chosen = chosen(asked, &["mpquic-dear"], streams).unwrap();
            chosen.iter().map(|system| system.name()).collect()
        };
        assert!(names(&[], 1).contains(&"mpquic") && !names(&[], 1).contains(&"mpquic-dear"));
        assert_eq!(names(&["mpquic-dear"], 1), ["mpquic-dear"]);
        for name in ["srt-apart", "srt-apart-fec", "rist-apart"] {
            assert!(names(&[], 3).contains(&name) && !names(&[], 1).contains(&name));
        }
    }

    #[test]
    fn modes_are_names_of_ours_by_rules() {
        let named = |mode| {
            let chosen = chosen(&[mode], &[], 1).unwrap();
            let named: Vec<_> = chosen.iter().map(|one| (one.name(), one.mode())).collect();
            named
        };
        for (mode, name) in [
            ("none", "starhaul-none"),
            ("retransmit", "starhaul-retransmit"),
            ("fec", "starhaul-fec"),
            ("fec+retransmit", "starhaul"),
        ] {
            assert_eq!(named(mode), [(name, mode)]);
        }
        let said = chosen(&["duplicate"], &[], 1).err().unwrap().to_string();
        assert!(
            said.contains("no mode of ours: fec+retransmit, none"),
            "{said}"
        );
    }
}
