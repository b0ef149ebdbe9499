//! Messages that are answered one after the other: by gateways at both ends of a chain of relays, and by the kernel's TCP from end to
//! end, over the same links, which lose packets in both directions.

use std::{ffi::OsString, net::SocketAddr};

use starhaul_plot::{Bound, Column, Goal};
use starhaul_replay::{Chain, Program, ReplayLink};

use super::{
    Hops, LEOTP, System,
    folder::{Folder, INGRESS},
    own::{address, relays},
};
use crate::{
    Error,
    dialogue::{Answered, PORT},
    realtime::{Bench, Measured, said},
};

/// Name of the part, what it stands for, what it shows.
pub(super) const PART: (&str, &str, &str) = (
    "messages",
    "",
    "messages and their answers over lossy hops in real time",
);
pub(super) const WHAT: &str = "Messages of 64 bytes over emulated links between network namespaces, each sent when the last was answered. An application's \
     TCP connection leads to a gateway, over LEOTP and a relay in each node on the way to the gateway of the last node, and to a server that \
     sends back what comes; the kernel's TCP passes the same links from end to end. The last column is the round trip of the path and two \
     more of a hop, without the time of any program.";

/// The result of one run.
pub(super) struct Row {
    system: String,
    hops: u64,
    link: String,
    seed: u64,
    answered: Answered,
    /// The round trip of the path and two more of a hop, if each hop has the same all the time.
    bound_ms: Option<f64>,
}

impl Row {
    pub(super) fn new(chain: &Hops, system: &System, seed: u64, answered: Answered) -> Self {
        Self {
            system: system.name(),
            hops: chain.count as u64,
            link: chain.text.clone(),
            seed,
            answered,
            bound_ms: chain.message_bound_ms(),
        }
    }
}

pub(super) fn columns() -> Vec<Column<Row>> {
    let ms = |key, name, of: fn(&Row) -> f64| {
        Column::number(key, name, "ms", 1, move |row: &Row| of(row).into()).median()
    };
    vec![
        Column::name("system", "system", |row: &Row| row.system.as_str().into()),
        Column::count("hops", "hops", |row: &Row| row.hops.into()),
        Column::name("link", "link", |row: &Row| row.link.as_str().into()).dropped(),
        Column::count("seed", "seed", |row: &Row| row.seed.into()).dropped(),
        Column::count("messages", "messages", |row: &Row| {
            row.answered.messages.into()
        })
        .median(),
        ms("latency_p50_ms", "median", |row| row.answered.p50_ms),
        ms("latency_p99_ms", "p99", |row| row.answered.p99_ms),
        ms("latency_max_ms", "greatest", |row| row.answered.greatest_ms),
        Column::number("bound_ms", "path and 2 hops", "ms", 1, |row: &Row| {
            row.bound_ms.into()
        })
        .median(),
    ]
}

/// What messages over LEOTP are to reach, in each run.
pub(super) fn goals(chain: &Hops, rows: &[Row]) -> Vec<Goal> {
    let ours = rows.iter().filter(|row| row.system == LEOTP);
    let slowest = ours.map(|row| row.answered.p99_ms).fold(f64::NAN, f64::max);
    let bound = chain.message_bound_ms();
    let goal = |bound| Goal::new(LEOTP, "latency_p99_ms", slowest, Bound::AtMost(bound));
    bound.map(goal).into_iter().collect()
}

impl Hops {
    /// Links that lose packets in both directions.
    fn lossy_links(&self, seed: u64) -> Vec<ReplayLink> {
        let link = |number| {
            let both = self.forward.clone();
            ReplayLink::new(
                format!("hop{}", number + 1),
                both.clone(),
                both,
                seed,
                number,
            )
        };
        (0..self.count).map(link).collect()
    }

    /// The round trip of the path and two more of a hop: what an answer takes if a packet is lost on the way there and another on the way
    /// back, and each is sent again one round trip of the hop later.
    fn message_bound_ms(&self) -> Option<f64> {
        Some(self.round_trip(2)?.as_secs_f64() * 1e3)
    }
}

/// A dialogue for the run's time.
pub(super) fn run(
    bench: &Bench,
    hops: &Hops,
    seed: u64,
    system: &System,
) -> Result<Measured<Answered>, Error> {
    let links = hops.lossy_links(seed);
    let Measured {
        metrics: text,
        valid,
    } = bench.along(&links, |chain| match system {
        System::Leotp { .. } => over_gateways(bench, chain, hops, seed),
        System::Kernel(kernel) => {
            let controller = ["--controller".into(), kernel.0.clone().into()];
            let _server = server(bench, chain, hops, &controller)?;
            let to = SocketAddr::new(address(chain, hops.count)?, PORT);
            said(chain, &client(bench, hops, to, &controller), |_| Ok(()))
        }
    })?;
    let answered = serde_json::from_str(&text)
        .map_err(|error| Error::Failed(format!("{error} in what lab echo said: {text}")))?;
    Ok(Measured {
        metrics: answered,
        valid,
    })
}

fn over_gateways(bench: &Bench, chain: &Chain, hops: &Hops, seed: u64) -> Result<String, Error> {
    let folder = Folder::new(&bench.program, hops.count, 0, seed)?;
    let last = address(chain, hops.count)?;
    let _server = server(bench, chain, hops, &[])?;
    let _far = chain.serve(hops.count, &folder.far_gateway(hops.count, last)?)?;
    let _relays = relays(chain, &folder, hops)?;
    let near = folder.near_gateway(address(chain, 1)?, last)?;
    let _near = chain.serve(0, &near)?;
    said(chain, &client(bench, hops, INGRESS, &[]), |_| Ok(()))
}

fn server(
    bench: &Bench,
    chain: &Chain,
    hops: &Hops,
    controller: &[OsString],
) -> Result<Program, Error> {
    let mut command = echo(bench, "server");
    command.extend_from_slice(controller);
    Ok(chain.serve(hops.count, &command)?)
}

fn client(bench: &Bench, hops: &Hops, to: SocketAddr, controller: &[OsString]) -> Vec<OsString> {
    let mut command = echo(bench, "client");
    let seconds = hops.seconds.to_string();
    let to = to.to_string();
    command.extend(["--json", "--seconds", &seconds, "--server", &to].map(Into::into));
    command.extend_from_slice(controller);
    command
}

fn echo(bench: &Bench, end: &str) -> Vec<OsString> {
    let rest = ["--log", "warn", "lab", "echo", end].map(Into::into);
    std::iter::once(bench.program.clone().into())
        .chain(rest)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(link: &str) -> Hops {
        Hops {
            count: 4,
            text: link.to_owned(),
            forward: link.parse().unwrap(),
            rate: starhaul_units::Bandwidth::from_mbit(20),
            seconds: 1,
        }
    }

    #[test]
    fn each_run_is_to_be_within_the_bound() {
        let chain = hops("rate=20mbit,delay=10ms,loss=1%");
        let row = |p99_ms| {
            let answered = Answered {
                messages: 100,
                p50_ms: 80.0,
                p99_ms,
                greatest_ms: 500.0,
            };
            Row::new(&chain, &System::Leotp { killed: None }, 1, answered)
        };
        let met = |rows: &[Row]| {
            let goals = goals(&chain, rows);
            assert_eq!(goals.len(), 1);
            goals.iter().all(Goal::is_met)
        };
        assert!(met(&[row(108.0), row(120.0)]));
        assert!(!met(&[row(108.0), row(120.1)]));
        assert!(!met(&[]), "nothing was measured");
    }

    #[test]
    fn the_bound_is_the_path_and_two_hops() {
        let bound = hops("rate=20mbit,delay=10ms,loss=1%").message_bound_ms();
        assert_eq!(bound, Some(120.0));
        let both = hops("rate=20mbit,delay=10ms,loss=1%").lossy_links(3);
        assert!(both.iter().all(|link| link.up.loss == link.down.loss));
    }
}
