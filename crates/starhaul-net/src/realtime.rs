//! Real-time scheduling of threads.

use std::num::NonZeroU64;

/// Lets the calling thread's timers fire when they are due: the kernel's default slack is 50 µs.
pub fn sharpen_timers() {
    // Only kernels without the call refuse it; the default slack stays there.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Takes real-time priority from the calling thread, which it may have from the thread that started it, and so from the programs that it
/// starts. Returns whether it runs as others now.
#[expect(unsafe_code, reason = "no safe binding exists")]
pub fn run_as_others() -> bool {
    // SAFETY: an all-zero `sched_param` is a valid value of this plain structure.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: thread 0 is the caller, and the kernel only reads `parameters`, which lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) == 0 }
}

/// Gives the calling thread real-time priority (`SCHED_FIFO`, lowest priority). Needs a privilege; returns whether it
/// was granted.
#[expect(unsafe_code, reason = "no safe binding exists")]
pub fn run_first() -> bool {
    // SAFETY: an all-zero `sched_param` is a valid value of this plain structure.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: thread 0 is the caller, and the kernel only reads `parameters`, which lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}
