//! Reads the output of `starhaul demo --json` and fails unless it is one object in which both systems carried every class, and ours carried
//! nearly all of it in time, unless the demo itself says that this machine was too busy for that.

use std::{error::Error, io::Read};

use serde_json::Value;

/// Of each class in time, on links that lose 2 %: a run of half a minute has all, one of five seconds begins without knowing its paths.
const LEAST_SHARE: f64 = 0.9;

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let report: Value = serde_json::from_str(&text)?;
    let warnings = report
        .pointer("/warnings")
        .and_then(Value::as_array)
        .ok_or("/warnings is missing or no list")?;
    let least_share = if warnings.is_empty() {
        LEAST_SHARE
    } else {
        0.0
    };
    for (system, least_share) in [("starhaul", least_share), ("mpquic", 0.0)] {
        for class in ["text", "audio", "video"] {
            check_class(
                &report,
                &format!("/systems/{system}/classes/{class}"),
                least_share,
            )?;
        }
        number(&report, &format!("/systems/{system}/qoe"))?;
        for path in ["leo", "geo"] {
            number(&report, &format!("/systems/{system}/paths/{path}/bytes"))?;
        }
        let intact = format!("/systems/{system}/download/sha256_ok");
        let is_intact = report
            .pointer(&intact)
            .and_then(Value::as_bool)
            .ok_or_else(|| format!("{intact} is missing"))?;
        // However little of it came; what breaks off is the baseline's own matter.
        if system == "starhaul" && !is_intact {
            return Err(format!("{intact}: the download is not what was sent").into());
        }
    }
    println!("the demo's report is complete");
    Ok(())
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
