//! Two and more gateways in one process, with real applications on loopback at both ends.

mod datagrams;
mod gateways;
mod sessions;
mod socks;
mod tcp;
