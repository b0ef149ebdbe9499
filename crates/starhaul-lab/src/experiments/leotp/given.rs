//! What the command line gives in place of the published set-ups: another chain, other paths.

use std::{fs, path::Path};

use starhaul_link::{LinkSpec, Rate};
use starhaul_orbit::PathOverTime;
use starhaul_units::Bandwidth;

use super::{
    PARTS,
    constellation::{Named, longest},
    real::Options,
    setups::Chain,
};
use crate::{Error, worlds::chain::Hop};

/// A content has no more bytes than this brings while a run lasts.
const MOST_RATE: Bandwidth = Bandwidth::from_mbit(1000);

/// A chain, and paths through constellations.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    pub(super) chain: Option<Chain>,
    pub(super) paths: Vec<Named>,
}

impl Given {
    /// What the options say.
    ///
    /// # Errors
    /// [`Error::Settings`] for a link or a path over which there is no run.
    pub(super) fn of(options: &Options) -> Result<Self, Error> {
        let link = options.link.as_deref().map(read_link).transpose()?;
        let usual = Chain::default();
        let is_chain = options.hops.is_some() || link.is_some();
        let chain = is_chain.then(|| Chain {
            hops: options.hops.map_or(usual.hops, usize::from),
            link,
        });
        let paths = options.path.iter().map(|file| read_path(file));
        Ok(Self {
            chain,
            paths: paths.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.chain.is_none() && self.paths.is_empty()
    }

    /// Refuses parts that are to run and in which it takes no effect.
    pub(super) fn refuse_others<'a>(
        &self,
        only: impl Iterator<Item = &'a str>,
    ) -> Result<(), Error> {
        for name in only {
            let part = PARTS.iter().find(|part| part.name == name);
            if part.is_some_and(|part| !part.takes(self)) {
                let with = PARTS.iter().filter(|part| part.takes(self));
                let with: Vec<&str> = with.map(|part| part.name).collect();
                return Err(Error::Settings(format!(
                    "--only {name}: its set-ups are as published: --hops and --link are of delay, bytes and hop-loss, --path of constellation and \
                     ablation; with what is given, choose among {}",
                    with.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The goals are those of the published set-ups.
    pub(super) fn refuse_goals(&self) -> Result<(), Error> {
        match self.is_nothing() {
            true => Ok(()),
            false => Err(Error::Settings(
                "--check: the goals are for the published set-ups: leave out --hops, --link and --path, or --check"
                    .to_owned(),
            )),
        }
    }
}

fn read_link(text: &str) -> Result<Hop, Error> {
    let refused = |why: &dyn ToString| {
        let why = why.to_string();
        Error::Settings(format!("--link {text}: {why}"))
    };
    let link: LinkSpec = text.parse().map_err(|why| refused(&why))?;
    let rate = match &link.rate {
        Rate::Constant(rate) => *rate,
        Rate::Trace(trace) => trace.mean_rate(),
    };
    if rate == Bandwidth::ZERO || rate > MOST_RATE {
        return Err(refused(&format!(
            "in virtual time a link has a rate, of at most {MOST_RATE}: write rate=20mbit"
        )));
    }
    Ok(Hop::of_link(link))
}

/// A path, by the name of its file.
fn read_path(file: &Path) -> Result<Named, Error> {
    let name = file.display().to_string();
    let refused = |why: &dyn ToString| {
        let why = why.to_string();
        Error::Settings(format!("--path {name}: {why}"))
    };
    let text = fs::read_to_string(file).map_err(|why| refused(&why))?;
    let path = PathOverTime::from_json(&name, &text)
        .map_err(|why| Error::Settings(format!("--path {why}")))?;
    let cut = path
        .steps()
        .take_while(|(at, _)| *at < longest(false))
        .find(|(_, step)| !step.is_connected())
        .map(|(at, _)| at);
    if let Some(at) = cut {
        let (from, to, seconds) = (path.from(), path.to(), at.as_secs_f64());
        return Err(refused(&format!(
            "{from} and {to} are not connected {seconds} s after its start, and a run needs a path all the time"
        )));
    }
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    Ok((stem.to_string_lossy().into_owned().into(), path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use std::time::Duration;

    use super::*;
    use crate::experiments::leotp::{Row, Setup};

    /// The first set-up of a part over what is given.
    fn setup(given: &Given, part: &str) -> Setup {
        let declared = PARTS.iter().find(|declared| declared.name == part).unwrap();
        declared.setups.with(given, true, 1, &["leotp"]).remove(0)
    }

    #[test]
    fn a_chain_that_was_never_published_runs_as_it_is_given() {
        let link = "rate=8mbit,delay=25ms,loss=ge:3%:4,queue=50p";
        let given = Given {
            chain: Some(Chain {
                hops: 3,
                link: Some(read_link(link).unwrap()),
            }),
            paths: Vec::new(),
        };
        let mut setup = setup(&given, "hop-loss");
        assert!((setup.loss - 0.03).abs() < 1e-9 && (setup.hops - 3.0).abs() < 1e-9);
        setup.plan.as_mut().unwrap().time = Duration::from_secs(10);
        let row = Row::of(&setup).unwrap();
        let ceiling = row.ceiling_mbps().unwrap();
        assert!(ceiling < 8.0 * 0.97, "{ceiling} Mbit/s");
        let goodput = row.goodput_mbps();
        assert!(
            (0.5 * ceiling..=ceiling).contains(&goodput),
            "{goodput} of {ceiling} Mbit/s"
        );
        let delay = row.owd_mean_ms().unwrap();
        assert!((75.0..200.0).contains(&delay), "{delay} ms");
    }

    /// Rows had a loss of zero and a ceiling that no transfer can reach.
    #[test]
    fn the_loss_of_a_recorded_link_counts_for_the_row_and_its_ceiling() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("link.csv");
        // A fifth of what the slower half carries, which is a quarter of all.
        let table = "t_s,capacity_mbps,loss_p\n0,12,0\n1,4,0.2\n";
        fs::write(&file, table).unwrap();
        let link = |more: &str| {
            let given = Given {
                chain: Some(Chain {
                    hops: 2,
                    link: Some(read_link(&format!("csv={}{more}", file.display())).unwrap()),
                }),
                paths: Vec::new(),
            };
            setup(&given, "hop-loss")
        };
        for (more, loss) in [("", 0.05), (",loss=10%", 0.1)] {
            let setup = link(more);
            assert!((setup.loss - loss).abs() < 1e-3, "{more}: {}", setup.loss);
            let row = Row::without_flows(setup);
            let ceiling = row.ceiling_mbps().unwrap();
            let expected = 8.0 * (1.0 - loss) * 1418.0 / 1481.0;
            assert!((ceiling - expected).abs() < 0.02, "{more}: {ceiling}");
        }
    }

    #[test]
    fn a_path_of_a_file_runs_by_the_name_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("over.json");
        let over = |satellite: u32| {
            format!(r#"{{"path":[0,{satellite},1],"delays_ns":[4000000,5000000]}}"#)
        };
        let write = |steps: &[String]| {
            let steps = steps.join(",");
            let text = format!(
                r#"{{"start":"2026-01-01","step_ms":1000,"nodes":["a","b","1","2"],"steps":[{steps}]}}"#
            );
            fs::write(&file, text).unwrap();
        };
        write(&[2, 2, 2, 3, 3, 3].map(over));
        let (name, path) = read_path(&file).unwrap();
        assert!(name.ends_with("over"), "{name}");
        let given = Given {
            chain: None,
            paths: vec![(name, path)],
        };
        let setup = setup(&given, "constellation");
        let plan_of = setup.plan.as_ref().unwrap();
        assert_eq!(plan_of.time, Duration::from_secs(6));
        assert!(setup.to.ends_with("over") && (setup.hops - 4.0).abs() < 1e-9);
        let row = Row::of(&setup).unwrap();
        assert!(row.goodput_mbps() > 1.0, "{} Mbit/s", row.goodput_mbps());

        write(&[over(2), r#"{"path":[],"delays_ns":[]}"#.to_owned(), over(2)]);
        let refused = read_path(&file).unwrap_err().to_string();
        assert!(refused.contains("not connected 1 s after"), "{refused}");
        let missing = read_path(Path::new("missing.json"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("--path missing.json"), "{missing}");
    }
}
