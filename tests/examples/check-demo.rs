//! Reads three outputs of `starhaul demo --json`: of all applications, of `--only blocks` and of `--only download`. Fails unless each is one
//! object; unless in the first both systems carried every class, and ours carried nearly all of it in time; and with `--judge` unless neither text
//! and audio nor the download are much worse there than by themselves. What needs a machine that is not too busy is not asked for where the demo itself
//! says that it was.

use std::{error::Error, io::Read};

use serde_json::{Deserializer, Value};

/// Of each class in time, on links that lose 2 %: a run of half a minute has all, one of a few seconds begins without knowing its paths.
const LEAST_SHARE: f64 = 0.9;
/// The median latency of text and audio beside the download, above that without it.
const MOST_MORE_MS: f64 = 8.0;
/// What text, audio and video offer together, in Mbit/s (docs/demo.md).
const OFFERED_MBPS: f64 = 5.452;
/// All applications together, per what a download has that nothing runs beside.
const LEAST_OF_ALONE: f64 = 0.95;

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let reports = Deserializer::from_str(&text).into_iter::<Value>();
    let reports = reports.collect::<Result<Vec<Value>, _>>()?;
    let [all, blocks, download] = &reports[..] else {
        return Err(format!("{} reports in place of three", reports.len()).into());
    };
    for (report, applications) in [(blocks, "blocks"), (download, "download")] {
        if report["applications"] != applications {
            return Err(format!("/applications is not {applications:?}").into());
        }
    }
    check_all(all)?;
    let least_share = least_share(blocks)?;
    for class in ["text", "audio", "video"] {
        let class_at = format!("/systems/starhaul/classes/{class}");
        check_class(blocks, &class_at, least_share)?;
    }
    check_download(download)?;
    println!("the demo's reports are complete");
    let beside = check_beside(all, blocks, download)?;
    let mut idle = true;
    for report in &reports {
        idle &= is_idle(report)?;
    }
    // A median of ten seconds, of which some are the start, differs by a millisecond.
    let is_judged = std::env::args().any(|argument| argument == "--judge");
    match beside {
        _ if !idle => println!("not judged: this machine was too busy"),
        Some(why) if is_judged => return Err(why.into()),
        Some(why) => println!("missed, which only --judge takes for an error: {why}"),
        None => {}
    }
    Ok(())
}

/// Whether the demo has nothing to say against its own figures.
fn is_idle(report: &Value) -> Result<bool, String> {
    let warnings = report.pointer("/warnings").and_then(Value::as_array);
    let warnings = warnings.ok_or("/warnings is missing or no list")?;
    Ok(warnings.is_empty())
}

fn least_share(report: &Value) -> Result<f64, String> {
    Ok(if is_idle(report)? { LEAST_SHARE } else { 0.0 })
}

/// The report of all applications over both systems.
fn check_all(report: &Value) -> Result<(), String> {
    for (system, least_share) in [("starhaul", least_share(report)?), ("mpquic", 0.0)] {
        for class in ["text", "audio", "video"] {
            let class_at = format!("/systems/{system}/classes/{class}");
            check_class(report, &class_at, least_share)?;
        }
        number(report, &format!("/systems/{system}/qoe"))?;
        for path in ["leo", "geo"] {
            number(report, &format!("/systems/{system}/paths/{path}/bytes"))?;
        }
        flag(report, &format!("/systems/{system}/download/sha256_ok"))?;
    }
    check_download(report)
}

/// However little of it came; what breaks off is the baseline's own matter.
fn check_download(report: &Value) -> Result<(), String> {
    let intact = "/systems/starhaul/download/sha256_ok";
    match flag(report, intact)? {
        true => Ok(()),
        false => Err(format!("{intact}: the download is not what was sent")),
    }
}

/// Prints what the applications of ours have beside each other, and by themselves; returns what is too bad, if anything is.
fn check_beside(all: &Value, blocks: &Value, download: &Value) -> Result<Option<String>, String> {
    let mut wrong = Vec::new();
    for class in ["text", "audio"] {
        let at = format!("/systems/starhaul/classes/{class}/p50_ms");
        let (beside, alone) = (number(all, &at)?, number(blocks, &at)?);
        let said = format!(
            "{class}: median {beside:.1} ms beside the download, {alone:.1} ms without it, at most {MOST_MORE_MS} ms more"
        );
        println!("{said}");
        if beside > alone + MOST_MORE_MS {
            wrong.push(said);
        }
    }
    let at = "/systems/starhaul/download/mbit_per_s";
    let (beside, alone) = (number(all, at)?, number(download, at)?);
    let together = beside + OFFERED_MBPS;
    let said = format!(
        "download: {beside:.2} Mbit/s, {together:.2} with the other applications, {alone:.2} alone, at least {LEAST_OF_ALONE} of it together"
    );
    println!("{said}");
    if together < LEAST_OF_ALONE * alone {
        wrong.push(said);
    }
    Ok((!wrong.is_empty()).then(|| wrong.join("; ")))
}

/// Each block sent had one end, some arrived, and of all so many did in time.
fn check_class(report: &Value, class_at: &str, least_share: f64) -> Result<(), String> {
    let count = |end: &str| number(report, &format!("{class_at}/{end}"));
    let (sent, on_time, late, lost) = (
        count("sent")?,
        count("on_time")?,
        count("late")?,
        count("lost")?,
    );
    let ended = on_time + late + lost;
    // Numbers of blocks, which floats hold exactly.
    if sent <= 0.0 || (ended - sent).abs() > 0.0 || on_time + late <= 0.0 {
        return Err(format!(
            "{class_at}: {sent} blocks sent, {ended} ended, {lost} of them lost"
        ));
    }
    if on_time < least_share * sent {
        return Err(format!("{class_at}: {on_time} of {sent} blocks on time"));
    }
    Ok(())
}

fn number(report: &Value, at: &str) -> Result<f64, String> {
    report
        .pointer(at)
        .and_then(Value::as_f64)
        .ok_or_else(|| format!("{at} is missing or no number"))
}

fn flag(report: &Value, at: &str) -> Result<bool, String> {
    report
        .pointer(at)
        .and_then(Value::as_bool)
        .ok_or_else(|| format!("{at} is missing"))
}
