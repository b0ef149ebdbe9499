//! `starhaul serve`, `relay`, `fetch` and gateways over LEOTP from the user's side, over emulated links that lose data.

mod connections;
mod files;
mod http;
mod nodes;
mod schedules;
mod transparent;

pub(crate) use nodes::{Folder, Running};
