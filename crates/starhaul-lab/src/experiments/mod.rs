//! The seeds' experiments in virtual time, as code: each gives figures that a test checks and a table prints.

pub mod aggregation;
pub mod cut;
pub mod dmtp;
pub mod qoe;
