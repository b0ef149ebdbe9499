//! What the process uses of the computer.

use rustix::time::{ClockId, clock_gettime};

/// What the process uses of the computer; figures that the kernel does not tell are absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Bytes of memory that are resident.
    pub resident_bytes: Option<u64>,
    /// Processor time since the start, of all threads.
    pub cpu_s: f64,
}

/// As the kernel tells it now.
pub fn process() -> Process {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    Process {
        resident_bytes: resident_bytes(),
        cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
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
