//! `starhaul ltp bench`: the benchmark is in `starhaul-transfer`, its goals are here.

use std::time::Duration;

use starhaul_ltp::{ETHERNET_SEGMENT_DATA, Profile, SegmentSize};
use starhaul_net::IoMode;
use starhaul_transfer::bench::{self, Report, Row};

use super::Mode;
use crate::{
    goals::{self, Bound, Floor, Goal, Judged},
    output::{print, spinner},
};

/// Pairs of raw datagrams and LTP by each kind of calls, and for how long they go on, if the caller does not say how many.
const LEAST_PAIRS: u32 = 5;
const LEAST_TIME: Duration = Duration::from_secs(5);
/// The fixed sizes that what adapts is compared with by --check: one packet of Ethernet, and about as much as a datagram can have.
const FIXED: [usize; 2] = [ETHERNET_SEGMENT_DATA, 64_000];

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Bytes of data per segment, from 64 to 65400; auto follows the path's MTU, losses and speed
    #[arg(long, value_name = "auto|BYTES", default_value_t)]
    segment: SegmentSize,
    /// What both ends agree on: with ccsds-734.1 there is no checksum of the block, with fixed headers are longer
    #[arg(long, value_name = "rfc5326|ccsds-734.1|fixed", default_value_t)]
    profile: Profile,
    /// Megabytes of the block
    #[arg(long, value_name = "MB", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=4000))]
    megabytes: u32,
    /// Only these system calls
    #[arg(long, value_enum, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// How often raw datagrams and LTP are measured by turns, after one transfer that is not counted; medians count [default: 5 times, and
    /// for 5 s]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    repeats: Option<u32>,
    /// Compare with the goals for two cores, and end with exit code 1 if one is missed: no segment lost; of 1360 bytes at least 70 % of raw
    /// UDP and, with gso, 5 Gbit/s and at most 1.5 us of processor time at either end; of 64000 with gso at least 7 Gbit/s; of auto, by turns
    /// with 1360 and 64000, at least 90 % of the better one
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    floor: Floor,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
///
/// # Errors
/// The measurement fails, or with `--check` a goal is missed.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let chosen = arguments.mode.iter().map(|mode| IoMode::from(*mode));
    let modes = match arguments.mode.is_empty() {
        true => IoMode::ALL.to_vec(),
        false => chosen.collect(),
    };
    let is_compared = arguments.check && arguments.segment == SegmentSize::Auto;
    let options = bench::Options {
        segment: arguments.segment,
        beside: if is_compared {
            FIXED.to_vec()
        } else {
            Vec::new()
        },
        profile: arguments.profile,
        block_bytes: usize::try_from(arguments.megabytes)? * 1_000_000,
        modes,
        repeats: usize::try_from(arguments.repeats.unwrap_or(LEAST_PAIRS))?,
        least_time: arguments.repeats.map_or(LEAST_TIME, |_| Duration::ZERO),
    };
    let progress = spinner();
    let report = bench::run(&options, |step| {
        progress.set_message(step.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    let report = report?;
    let judged = arguments
        .check
        .then(|| Judged::new(goals(&report), arguments.floor));
    let judged = judged.as_ref();
    let printed = print(match arguments.json {
        true => goals::json(&report, judged)?,
        false => table(arguments, &report) + &judged.map(Judged::lines).unwrap_or_default(),
    });
    // Whether or not the output is read.
    judged.map_or(Ok(()), Judged::judge).and(printed)
}

/// What LTP should reach with a block of 300 MB over loopback with Ethernet's MTU. Rates and processor time are goals of the system calls
/// that are used by default.
fn goals(report: &Report) -> Vec<Goal> {
    report.rows.iter().flat_map(goals_of).collect()
}

fn goals_of(row: &Row) -> Vec<Goal> {
    let name = format!("{}, {} bytes", row.mode, row.segment_bytes);
    let goal = |figure, measured, bound| Goal::new(&name, figure, measured, bound);
    let mut goals = vec![goal("lost", row.lost as f64, Bound::AtMost(0.0))];
    if let Some(share) = row.share_of_best_fixed {
        goals.push(goal("share_of_best_fixed", share, Bound::AtLeast(0.9)));
    }
    if row.segment_bytes == ETHERNET_SEGMENT_DATA {
        let share = row.share_of_ceiling;
        goals.push(goal("share_of_ceiling", share, Bound::AtLeast(0.7)));
    }
    if row.mode != IoMode::default().name() {
        return goals;
    }
    let rate = |least| goal("gbit_per_s", row.gbit_per_s, Bound::AtLeast(least));
    match row.segment_bytes {
        ETHERNET_SEGMENT_DATA => {
            let [send, receive] = [row.send_us_per_segment, row.receive_us_per_segment];
            goals.push(rate(5.0));
            goals.push(goal("send_us_per_segment", send, Bound::AtMost(1.5)));
            goals.push(goal("receive_us_per_segment", receive, Bound::AtMost(1.5)));
        }
        64_000 => goals.push(rate(7.0)),
        _ => {}
    }
    goals
}

fn table(arguments: &Arguments, report: &Report) -> String {
    let mtu = report.mtu.map(|bytes| format!(", MTU {bytes}"));
    let mut text = format!(
        "{} MB over loopback{}, segment size {}\n\n{:8} {:>10} {:>10} {:>10} {:>7} {:>13} {:>16} {:>6} {:>6}\n",
        arguments.megabytes,
        mtu.unwrap_or_default(),
        arguments.segment,
        "calls",
        "segment",
        "raw Gbit/s",
        "LTP Gbit/s",
        "share",
        "send us/seg",
        "receive us/seg",
        "lost",
        "pairs"
    );
    for (ceiling, row) in report.ceilings.iter().zip(&report.rows) {
        text += &format!(
            "{:8} {:>10} {:10.2} {:10.2} {:6.0}% {:13.2} {:16.2} {:6} {:6}\n",
            row.mode,
            row.segment_bytes,
            ceiling.gbit_per_s,
            row.gbit_per_s,
            100.0 * row.share_of_ceiling,
            row.send_us_per_segment,
            row.receive_us_per_segment,
            row.lost,
            row.pairs
        );
    }
    for row in &report.rows {
        text += &compared(row);
        text += &row.reason.as_ref().map_or_else(String::new, |reason| {
            format!(
                "{}: {} bytes per segment, {reason}\n",
                row.mode, row.segment_bytes
            )
        });
    }
    text
}

/// A line that tells how near what adapts comes to each fixed size; empty where there was none.
fn compared(row: &Row) -> String {
    let Some(share) = row.share_of_best_fixed else {
        return String::new();
    };
    let beside = row.beside.iter();
    let beside: Vec<String> = beside
        .map(|one| {
            let (bytes, rate, share) = (one.segment_bytes, one.gbit_per_s, 100.0 * one.share);
            format!("{share:.0}% of {bytes} bytes with {rate:.2} Gbit/s")
        })
        .collect();
    format!(
        "{}: {:.0}% of the best fixed size: {}\n",
        row.mode,
        100.0 * share,
        beside.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row that meets each goal just so.
    fn measured(mode: IoMode, segment_bytes: usize) -> Row {
        Row {
            mode: mode.name(),
            segment_bytes,
            gbit_per_s: 7.0,
            send_us_per_segment: 1.5,
            receive_us_per_segment: 1.5,
            share_of_ceiling: 0.7,
            share_of_best_fixed: None,
            beside: Vec::new(),
            pairs: 5,
            lost: 0,
            reason: None,
        }
    }

    fn count(mode: IoMode, segment_bytes: usize, change: impl Fn(&mut Row)) -> (usize, bool) {
        let mut row = measured(mode, segment_bytes);
        change(&mut row);
        let goals = goals_of(&row);
        (goals.len(), Goal::missed(&goals).is_none())
    }

    #[test]
    fn each_figure_of_the_goals_is_judged() {
        let missed: [fn(&mut Row); 5] = [
            |row| row.lost = 1,
            |row| row.gbit_per_s = 4.99,
            |row| row.share_of_ceiling = 0.699,
            |row| row.send_us_per_segment = 1.51,
            |row| row.receive_us_per_segment = 1.51,
        ];
        assert_eq!(count(IoMode::Gso, 1360, |_| {}), (5, true));
        for change in missed {
            assert_eq!(count(IoMode::Gso, 1360, change), (5, false));
        }
        assert_eq!(
            count(IoMode::Gso, 1360, |row| row.gbit_per_s = 5.0),
            (5, true)
        );
        assert_eq!(count(IoMode::Gso, 64_000, |_| {}), (2, true));
        assert_eq!(
            count(IoMode::Gso, 64_000, |row| row.gbit_per_s = 6.99),
            (2, false)
        );
        // What is asked of short segments.
        for change in &missed[2..] {
            assert_eq!(count(IoMode::Gso, 64_000, change), (2, true));
        }
    }

    /// Whatever the system calls, and the size that it came to.
    #[test]
    fn what_adapts_has_to_come_near_the_best_fixed_size() {
        for mode in IoMode::ALL {
            for (share, is_met) in [(0.9, true), (0.899, false)] {
                let adapts = |row: &mut Row| row.share_of_best_fixed = Some(share);
                assert_eq!(count(mode, 8192, adapts), (2, is_met));
            }
        }
        let mut row = measured(IoMode::Gso, 1360);
        assert_eq!(compared(&row), "");
        row.share_of_best_fixed = Some(0.95);
        let beside = |segment_bytes, share| bench::Beside {
            segment_bytes,
            gbit_per_s: 7.0,
            share,
        };
        row.beside = vec![beside(1360, 0.95), beside(64_000, 1.5)];
        assert_eq!(
            compared(&row),
            "gso: 95% of the best fixed size: 95% of 1360 bytes with 7.00 Gbit/s, 150% of 64000 bytes with 7.00 Gbit/s\n"
        );
    }

    #[test]
    fn other_calls_have_to_reach_their_own_ceiling_only() {
        for mode in [IoMode::Mmsg, IoMode::Single] {
            let slow = |row: &mut Row| row.send_us_per_segment = 4.0;
            assert_eq!(count(mode, 1360, slow), (2, true));
            let low = |row: &mut Row| row.share_of_ceiling = 0.69;
            assert_eq!(count(mode, 1360, low), (2, false));
            assert_eq!(count(mode, 8192, |row| row.lost = 1), (1, false));
        }
    }
}
