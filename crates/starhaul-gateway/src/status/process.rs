//! What the process uses of the computer.

use serde::{Deserialize, Serialize};

use super::numbers::rounded;

/// The name that `starhaul-endpoint` gives to the thread that drives all sessions, as far as the kernel keeps it.
const DRIVER: &str = "starhaul-driver";

/// What the process uses of the computer; figures that the kernel does not tell are absent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Bytes of memory that are resident.
    pub resident_bytes: Option<u64>,
    /// Processor time since the start, of all threads.
    pub cpu_s: f64,
    /// The same of the thread that drives all sessions.
    pub driver_cpu_s: Option<f64>,
}

/// As the kernel tells it now.
pub(super) fn process() -> Process {
    let process = starhaul_metrics::process();
    Process {
        resident_bytes: process.resident_bytes,
        cpu_s: rounded(process.cpu_s),
        driver_cpu_s: driver_cpu_s().map(rounded),
    }
}

/// The first figure of `schedstat`: nanoseconds on a processor.
fn driver_cpu_s() -> Option<f64> {
    let mut tasks = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let driver = tasks.find(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == DRIVER)
    })?;
    let times = std::fs::read_to_string(driver.path().join("schedstat")).ok()?;
    let nanoseconds: u64 = times.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}
