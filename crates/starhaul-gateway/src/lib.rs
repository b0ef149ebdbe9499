//! Ingress and egress for unmodified applications: local sockets on one side, sessions with other gateways on the other.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::path::Path;
//! use starhaul_gateway::{Config, Gateway};
//!
//! let gateway = Gateway::start(Config::load(Path::new("gateway.toml"))?).await?;
//! println!("{:#}", gateway.status());
//! gateway.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod batch_socket;
mod bundles;
mod byte_stream;
mod causes;
mod chain;
pub mod config;
mod connect;
#[doc(hidden)]
pub mod control;
mod egress;
mod egress_policy;
mod error;
mod gateway;
pub mod hours;
mod ingress;
mod kept;
pub mod label;
mod ledger;
mod limits;
mod memory;
mod open_networks;
mod parts;
mod path_change;
mod path_ledger;
mod path_names;
mod path_orders;
mod peer;
mod policy;
#[doc(hidden)]
pub mod quota;
mod rate_feed;
mod records;
mod relay;
mod resolver;
mod room;
pub mod rtp;
mod sealed;
mod session_paths;
mod shared;
pub mod socks5;
mod state_folder;
pub mod status;
mod target;
#[doc(hidden)]
pub mod tunnel;
mod unserved;
mod web;

pub use config::Config;
pub use control::{ask_status, find_status, order_path};
pub use egress_policy::{EgressLimits, EgressPolicy, EgressRule, ParseEgressRuleError};
pub use error::Error;
pub use gateway::{Gateway, Reload};
pub use limits::raise_open_files;
pub use path_change::PathChange;
pub use path_orders::MAX_COST;
pub use records::PathRecords;
#[doc(hidden)]
pub use resolver::Resolver;
pub use starhaul_endpoint::QlogFolder;
pub use target::{Host, ParseTargetError, Target};
