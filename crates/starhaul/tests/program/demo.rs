//! `starhaul demo`: what it leaves on the disk, and what it must not touch.

use crate::program::{run, text};

#[test]
fn a_run_lasts_an_hour_at_most() {
    let output = run(&["demo", "--seconds", "3601"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("3600"), "{output:?}");
}
