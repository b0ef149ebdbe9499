//! Paths over time as the files that `replay`, `trace` and the lab read: a table, and LeoEM's path log.

use std::{
    io::{self, Write},
    time::Duration,
};

use starhaul_units::Bandwidth;

use crate::{End, PathOverTime};

/// Writes a table with a row for each step: offset, delay, loss (1 without a path, else 0), links, whether the path is
/// another one than before, and its nodes. With `capacity` also the capacity of the ground link at one end
/// ([`PathOverTime::gsl_capacity`], and half of the base without a path, where all packets are lost); then
/// [`starhaul_link::parse_csv`] reads it as a link, if it has two rows and is at most two hours long.
///
/// # Errors
/// Errors of the writer.
pub fn write_table(
    path: &PathOverTime,
    capacity: Option<(End, Bandwidth)>,
    mut out: impl Write,
) -> io::Result<()> {
    let rates = capacity.map(|(end, base)| path.link_capacity(end, base));
    let column = if rates.is_some() {
        "capacity_mbps,"
    } else {
        ""
    };
    writeln!(out, "t_s,{column}owd_ms,loss_p,links,changed,path")?;
    let mut last = None;
    let rows = path.steps().zip(path.held_delays()).enumerate();
    for (number, ((at, step), delay)) in rows {
        write!(out, "{}.{:03},", at.as_secs(), at.subsec_millis())?;
        if let Some((_, rate)) = rates.as_ref().and_then(|rates| rates.get(number)) {
            write!(out, "{},", rate.mbit())?;
        }
        let (loss, changed) = (
            u8::from(!step.is_connected()),
            u8::from(last.is_some_and(|last| last != &step.nodes)),
        );
        let names: Vec<&str> = step.nodes.iter().map(|node| path.node(*node)).collect();
        let names = names.join(" > ").replace('"', "\"\"");
        writeln!(
            out,
            "{},{loss},{},{changed},\"{names}\"",
            decimal_ms(delay),
            step.links()
        )?;
        last = Some(&step.nodes);
    }
    Ok(())
}

/// Writes a path log as LeoEM's, which [`starhaul_link::parse_leoem`] and other tools read: a line for each second, with
/// -1 and -2 for the stations and the numbers of other nodes in [`PathOverTime::node`].
///
/// # Errors
/// Errors of the writer; [`io::ErrorKind::InvalidInput`] for steps that are not whole seconds.
pub fn write_leoem(path: &PathOverTime, mut out: impl Write) -> io::Result<()> {
    if path.step().subsec_nanos() != 0 {
        let problem = "a path log has whole seconds, and the steps are not";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    for (at, step) in path.steps() {
        let second = at.as_secs() + 1;
        if !step.is_connected() {
            writeln!(out, "{second}$NULL")?;
            continue;
        }
        let name = |node: &u32| match node {
            0 => "-1".to_owned(),
            1 => "-2".to_owned(),
            other => other.to_string(),
        };
        let nodes: Vec<String> = step.nodes.iter().map(name).collect();
        let delays: Vec<String> = step.hops().map(|(.., delay)| decimal_s(delay)).collect();
        writeln!(
            out,
            "{second}$[{}]${}$[{}]${}",
            nodes.join(", "),
            nodes.len(),
            delays.join(", "),
            decimal_s(step.propagation())
        )?;
    }
    Ok(())
}

/// Seconds to the nanosecond.
fn decimal_s(time: Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}

/// Milliseconds to the nanosecond.
fn decimal_ms(time: Duration) -> String {
    let nanos = time.as_nanos();
    format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000)
}
