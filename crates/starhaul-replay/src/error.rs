//! Why links cannot be emulated.

use std::io;

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket or a timer is not to be had.
    #[error(transparent)]
    Net(#[from] starhaul_net::Error),
    /// The system lets this user have no network namespace.
    #[error(
        "cannot make a network namespace: {source}; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or let users make user \
         namespaces (sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0, \
         user.max_user_namespaces above 0); `starhaul demo` emulates links without either"
    )]
    Namespace {
        /// Why.
        source: io::Error,
    },
    /// The system gives no TUN device.
    #[error(
        "cannot make a tun device: {source}; load the kernel's module (modprobe tun), or give this container /dev/net/tun; \
         `starhaul demo` emulates links without it"
    )]
    Tun {
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a setting of an emulated link, or a device of it failed.
    #[error("cannot set up or use the emulated link: {0}")]
    Network(#[source] io::Error),
    /// A process could not be started or waited for.
    #[error("cannot run the command under a supervisor: {0}")]
    Command(#[source] io::Error),
    /// The server was over before it listened.
    #[error("the server ended with exit code {code} before it listened; try its command by itself")]
    Server {
        /// As a shell reports it.
        code: u8,
    },
}

/// A thread, an event or a lock that the system did not give.
pub(crate) fn system(source: io::Error) -> Error {
    Error::Net(starhaul_net::Error::System(source))
}
