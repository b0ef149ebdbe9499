//! What the process uses of the computer.

use rustix::time::{ClockId, clock_gettime};
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
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    Process {
        resident_bytes: resident_bytes(),
        cpu_s: rounded(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9),
        driver_cpu_s: driver_cpu_s().map(rounded),
    }
}

/// `VmRSS` of proc_pid_status(5).
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
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
