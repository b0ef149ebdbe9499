//! Memory that was freed goes back to the system when that is asked for. A test program of its own, for it chooses the allocator.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As large as the buffers of batches, and as pages of streams.
const SIZES: [usize; 2] = [60 << 10, 4 << 10];
const BYTES_OF_EACH: usize = 32 << 20;

/// Resident memory of this process.
fn resident_kb() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kb = line.unwrap().split_whitespace().nth(1).unwrap();
    kb.parse().unwrap()
}

#[test]
fn what_a_burst_has_used_goes_back_at_once_though_nothing_else_happens() {
    let before = resident_kb();
    let held: Vec<Vec<u8>> = SIZES
        .into_iter()
        .flat_map(|size| (0..BYTES_OF_EACH / size).map(move |_| vec![7; size]))
        .collect();
    let with = resident_kb();
    let used = with.saturating_sub(before);
    assert!(used > 50 << 10, "{before} kB before, {with} kB with");
    drop(held);
    starhaul_net::release_memory();
    let after = resident_kb();
    assert!(
        after < before + used / 4,
        "{before} kB before, {with} kB with, {after} kB after"
    );
}
