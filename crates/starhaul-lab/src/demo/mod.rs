//! `starhaul demo`: real applications over two gateways and, beside them, over the baseline, on identical emulated links.

mod options;
mod result;
mod run;
mod system;
mod table;

pub use options::{DemoOptions, parse_loss};
pub use result::{Course, DemoResult, PathResult, Paths, Sample, SystemResult, Systems};
pub use run::{DemoRun, Progress, SystemProgress, run};
pub use table::{Live, final_table};
