//! What can go wrong in the demo.

/// Why the demo or the baseline could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A setting makes no sense.
    #[error("{0}")]
    Settings(String),
    /// An application or a system did not come up, or stopped.
    #[error("{0}")]
    Failed(String),
    /// The baseline's QUIC stack refused.
    #[error("baseline: {0}")]
    Baseline(String),
    /// A socket failed.
    #[error(transparent)]
    Net(#[from] starhaul_net::Error),
    /// A link could not be emulated.
    #[error(transparent)]
    Replay(#[from] starhaul_replay::Error),
    /// A link cannot be as described.
    #[error(transparent)]
    Link(#[from] starhaul_link::Error),
    /// A gateway refused.
    #[error(transparent)]
    Gateway(#[from] starhaul_gateway::Error),
}

impl Error {
    /// Whether what was asked for is wrong, and not how it went.
    pub const fn is_configuration(&self) -> bool {
        matches!(self, Self::Settings(_) | Self::Link(_))
    }

    /// Wraps an error of the operating system with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
