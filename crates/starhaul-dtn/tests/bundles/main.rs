//! Bundle nodes with each other and with their applications. One program, for each links all that a node is made of.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kit;

mod damage;
mod dtn7;
mod fragments;
mod head_on;
mod metrics;
mod nodes;
mod one_way;
mod priority;
mod recovery;
mod reports;
mod routes;
mod security;
mod tcpcl;
