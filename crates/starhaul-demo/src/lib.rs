//! `starhaul demo`: real applications over two gateways and, beside them, over the baseline, on identical emulated links, scored by
//! the same rule.
//!
//! ```
//! use std::time::Duration;
//! use starhaul_demo::{load::Class, score::ClassLog};
//!
//! let mut log = ClassLog::new(Class::Text);
//! log.on_sent(Duration::ZERO);
//! log.on_sent(Duration::from_millis(50));
//! log.on_received(0, Duration::from_millis(30)); // after 30 ms
//! assert_eq!((log.score().on_time, log.score().lost), (1, 1));
//! ```

pub mod apps;
pub mod baseline;
pub mod load;
pub mod score;
#[cfg(feature = "space")]
pub mod space;

mod error;
mod options;
mod report;
mod result;
mod run;
mod system;
mod table;
mod terminal;

pub use error::Error;
pub use options::{DemoOptions, MAX_SECONDS};
pub use report::Report;
pub use result::{DemoResult, PathResult, Paths, Sample, SystemResult, SystemSeries, Systems};
pub use run::{DemoRun, Progress, SystemProgress, run};
pub use table::{Live, final_table};
