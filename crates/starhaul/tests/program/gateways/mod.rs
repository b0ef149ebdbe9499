//! Two gateways as processes, each in a network namespace of its own, joined by veth pairs: a transfer while interfaces
//! and addresses change.
//!
//! A test creates a [`network::Network`] (or is skipped there), starts a [`gateway::Pair`] in it, and runs a
//! [`transfer::Transfer`] while it changes the network.
#![allow(dead_code, reason = "a harness of which each test uses a part")]

mod addresses;
mod alerts;
mod browser;
mod clock_steps;
mod doctor;
mod gateway;
mod harness;
mod names;
mod network;
mod offered_paths;
mod packet_sizes;
mod page;
mod path_orders;
mod quotas;
mod reload;
mod stalled;
mod tproxy;
mod transfer;
mod tunnel;
mod tunnel_applications;

pub(crate) use self::alerts::{is_installed, rules};
use crate::program::{PATIENCE, wait_for};
