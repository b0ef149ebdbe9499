//! Reads the output of `starhaul demo --json` and fails unless it is one object in which both systems carried every
//! class.

use std::{error::Error, io::Read};

use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let report: Value = serde_json::from_str(&text)?;
    for system in ["starhaul", "mpquic"] {
        for class in ["text", "audio", "video"] {
            let class_at = format!("/systems/{system}/classes/{class}");
            let sent = number(&report, &format!("{class_at}/sent"))?;
            let ended = ["on_time", "late", "lost"]
                .iter()
                .map(|end| number(&report, &format!("{class_at}/{end}")))
                .sum::<Result<f64, _>>()?;
            if sent <= 0.0 || ended > sent {
                return Err(format!("{class_at}: {sent} blocks sent, {ended} ended").into());
            }
        }
        number(&report, &format!("/systems/{system}/qoe"))?;
        for path in ["leo", "geo"] {
            number(&report, &format!("/systems/{system}/paths/{path}/bytes"))?;
        }
        let intact = format!("/systems/{system}/download/sha256_ok");
        if !report.pointer(&intact).is_some_and(Value::is_boolean) {
            return Err(format!("{intact} is missing").into());
        }
    }
    println!("the demo's report is complete");
    Ok(())
}

fn number(report: &Value, at: &str) -> Result<f64, String> {
    report
        .pointer(at)
        .and_then(Value::as_f64)
        .ok_or_else(|| format!("{at} is missing or no number"))
}
