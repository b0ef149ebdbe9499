//! Why links cannot be emulated.

use std::io;

/// Errors of emulated links.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No socket or timer is available.
    #[error(transparent)]
    Net(#[from] starhaul_net::Error),
    /// This user may not create a network namespace.
    #[error(
        "cannot make a network namespace: {source}; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or let users make user \
         namespaces (sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0, \
         user.max_user_namespaces above 0); `starhaul demo` emulates links without either"
    )]
    Namespace {
        /// The system's error.
        source: io::Error,
    },
    /// The system provides no TUN device.
    #[error(
        "cannot make a tun device: {source}; load the kernel's module (modprobe tun), or give this container /dev/net/tun; \
         `starhaul demo` emulates links without it"
    )]
    Tun {
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refused a setting of an emulated link, or a device of it failed.
    #[error("cannot set up or use the emulated link: {0}")]
    Network(#[source] io::Error),
    /// A process could not be started or waited for.
    #[error("cannot run the command under a supervisor: {0}")]
    Command(#[source] io::Error),
    /// The server ended before it listened.
    #[error("the server ended with exit code {code} before it listened; try its command by itself")]
    Server {
        /// Its exit code as a shell reports it.
        code: u8,
    },
}

/// A thread, an event or a lock is not available.
pub(crate) fn system(source: io::Error) -> Error {
    Error::Net(starhaul_net::Error::System(source))
}
