//! Sessions in virtual time, one program, which is linked once.

#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

mod aside;
mod beside;
mod budget;
mod dmtp;
mod dropped;
mod facts;
mod hostile;
mod hostile_words;
mod leaving;
mod modes;
mod narrowing;
mod optimizer;
mod outcomes;
mod pair;
mod paths;
mod reconfiguration;
mod reliable;
mod scheduling;
mod stalled;
mod together;
mod victim;
mod writers;
