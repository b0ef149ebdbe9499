//! The program as its users run it: commands, and processes of it beside each other. One program of tests, because those of
//! processes mostly wait.
#![allow(clippy::unwrap_used, reason = "a test harness")]

mod command_line;
mod contents;
mod demo;
mod dtn;
mod gateways;
mod init;
mod journal;
mod ltp;
mod metrics;
mod operator;
mod orbit;
mod outcomes;
mod program;
mod records;
mod status;
mod status_filters;
mod trace;
