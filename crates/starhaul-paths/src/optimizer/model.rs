//! What the optimizer is asked, and the strategies among which it divides.

use std::time::Duration;

use starhaul_units::Bandwidth;

/// The greatest price that is accepted, so that every sum stays finite.
const MOST_COST: f64 = 1e12;

/// A path as the optimizer sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedPath {
    /// Rate that the path carries.
    pub bandwidth: Bandwidth,
    /// One-way delay; counted in whole microseconds, so that comparisons with a lifetime are exact.
    pub delay: Duration,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Price of a bit, 0 to 10¹²; any unit.
    pub cost: f64,
    /// Time from sending a packet until its loss is known; `None` for the publication's `t_i`: its delay, and the least delay of all
    /// paths for the acknowledgement.
    pub loss_known_after: Option<Duration>,
}

/// What a stream may do against losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Lost data are sent again, once.
    pub retransmits: bool,
    /// Redundancy may be sent with the data.
    pub code: Option<CodeSize>,
}

impl Protection {
    /// The publication's model: retransmission alone.
    pub const RETRANSMISSION: Self = Self {
        retransmits: true,
        code: None,
    };
}

/// The codes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSize {
    /// Data fragments of a code (`k`), at least 1.
    pub data: u8,
    /// Most redundancy fragments (`r`).
    pub most_redundancy: u8,
}

/// What a stream, or several of one kind, offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bits per second (λ).
    pub rate: Bandwidth,
    /// In this time after sending they must have arrived (δ).
    pub lifetime: Duration,
    /// 0 is the most important; demands of equal priority are served together.
    pub priority: u8,
    /// What may be done against losses.
    pub protection: Protection,
    /// A remaining loss of at most this counts as none: more protection is not bought for less. 0 to 1.
    pub negligible_loss: f64,
}

/// How a bit is sent. Paths are named by their place in [`Problem::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Not at all (the publication's path 0).
    Drop,
    /// Sent once, over one path.
    Plain {
        /// The path, by its place.
        path: usize,
    },
    /// Once, and again if it is lost.
    Retransmit {
        /// The path on which it leaves first (`i`).
        path: usize,
        /// The path on which it is sent again when lost (`j`).
        again: usize,
    },
    /// In a code, whose redundancy leaves with the data.
    Code {
        /// The path of the data.
        path: usize,
        /// The path of the redundancy.
        redundancy_path: usize,
        /// Data fragments of a code.
        data: u8,
        /// Redundancy fragments for them.
        redundancy: u8,
    },
}

impl Strategy {
    /// The path on which the data leave first; `None` if they are dropped.
    pub const fn first_path(self) -> Option<usize> {
        match self {
            Self::Drop => None,
            Self::Plain { path } | Self::Retransmit { path, .. } | Self::Code { path, .. } => {
                Some(path)
            }
        }
    }
}

/// Paths, demands and what may be spent.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    /// The paths; strategies name them by their place here.
    pub paths: &'a [OfferedPath],
    /// The demands, in any order.
    pub demands: &'a [Demand],
    /// Greatest cost per second, in the unit of [`OfferedPath::cost`] times bits; `None` for no limit.
    pub budget: Option<f64>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptimizerError {
    /// The paths cannot reach the wanted quality.
    #[error(
        "a quality of {wanted} was wanted, and the paths reach {possible}: lower the demand, allow more time, or add a path"
    )]
    Infeasible {
        /// Share of the data that should arrive in time.
        wanted: f64,
        /// The greatest share that can.
        possible: f64,
    },
    /// A figure of a path is not a number, or out of its range.
    #[error("path {path}: {figure} must be {range}")]
    Path {
        /// Its place among the paths.
        path: usize,
        /// Name of the figure.
        figure: &'static str,
        /// Values that are accepted, as text for people.
        range: &'static str,
    },
    /// The budget or a negligible loss is not a number, or out of its range.
    #[error("{figure} must be {range}")]
    Figure {
        /// Name of the figure.
        figure: &'static str,
        /// Values that are accepted, as text for people.
        range: &'static str,
    },
    /// The solver failed on numbers that are valid.
    #[error("the linear program could not be solved: {0}")]
    Solver(String),
}

impl Problem<'_> {
    pub(super) fn check(&self) -> Result<(), OptimizerError> {
        for (path, offered) in self.paths.iter().enumerate() {
            let error = |figure, range| OptimizerError::Path {
                path,
                figure,
                range,
            };
            if !(0.0..=1.0).contains(&offered.loss) {
                return Err(error("loss", "0 to 1"));
            }
            if !(0.0..=MOST_COST).contains(&offered.cost) {
                return Err(error("cost", "0 to 1e12"));
            }
        }
        let figure = |figure, range| OptimizerError::Figure { figure, range };
        if self
            .budget
            .is_some_and(|budget| budget.is_nan() || budget < 0.0)
        {
            return Err(figure("budget", "at least 0"));
        }
        let mut demands = self.demands.iter();
        if demands.any(|demand| !(0.0..=1.0).contains(&demand.negligible_loss)) {
            return Err(figure("negligible loss", "0 to 1"));
        }
        Ok(())
    }
}
