//! What can go wrong in the lab.

/// Why an experiment could not run.
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
    /// An experiment did not go as it must for its figures to mean anything.
    #[error("{0}")]
    Failed(String),
    /// A flow of a comparison failed by itself, which says nothing of the others.
    #[error("{0}")]
    Flow(String),
    /// Who started it wants it to end.
    #[error("{0}")]
    Interrupted(String),
    /// The baseline or an application of the demo failed.
    #[error(transparent)]
    Demo(#[from] starhaul_demo::Error),
    /// A link could not be emulated.
    #[error(transparent)]
    Replay(#[from] starhaul_replay::Error),
    /// A link cannot be as described.
    #[error(transparent)]
    Link(#[from] starhaul_link::Error),
    /// Our own stack refused.
    #[error(transparent)]
    Quic(#[from] starhaul_quic::Error),
    /// An endpoint refused, or its peer is not there.
    #[error(transparent)]
    Endpoint(#[from] starhaul_endpoint::Error),
}

impl Error {
    /// Whether what was asked for is wrong, and not how it went.
    pub const fn is_configuration(&self) -> bool {
        match self {
            Self::Settings(_) | Self::Link(_) => true,
            Self::Demo(error) => error.is_configuration(),
            _ => false,
        }
    }

    /// What went wrong while links were there is the own failure of what ran over them, unless it was interrupted.
    pub(crate) fn over_links(self) -> Self {
        match self {
            Self::Interrupted(_) | Self::Flow(_) => self,
            other => Self::Flow(other.to_string()),
        }
    }

    /// Whether nothing else of a comparison can run or should, either: without links, with a wrong setting, once it is interrupted.
    pub(crate) const fn ends_all(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::Replay(_)) || self.is_configuration()
    }

    /// Wraps an error of the operating system with what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
