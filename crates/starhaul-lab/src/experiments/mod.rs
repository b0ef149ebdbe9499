//! The experiments, none of which takes anything from another. Each stands in [`all`] and is a command of `starhaul lab`.

pub mod aggregation;
pub mod agreement;
pub mod cut;
pub mod dmtp;
pub mod hard;
pub mod leocc;
pub mod leotp;
pub mod ltp;
pub mod mpdtp;

use crate::kit::Experiment;

/// Every experiment, in the order of the list.
pub fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(leocc::LeoCc),
        Box::new(agreement::Agreement),
        Box::new(dmtp::Dmtp),
        Box::new(mpdtp::Mpdtp),
        Box::new(hard::study()),
        Box::new(aggregation::study()),
        Box::new(cut::study()),
        Box::new(ltp::study()),
        Box::new(leotp::Leotp),
    ]
}
