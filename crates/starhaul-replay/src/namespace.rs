//! Network namespaces without a name: held by a descriptor, freed by the kernel after the last process that uses them.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use starhaul_net::{Routing, interface_index};

use crate::Error;

/// A network namespace, kept alive by this value and by every process and thread in it.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Creates an empty namespace.
    ///
    /// # Errors
    /// The system's error if this user may not (`CAP_SYS_ADMIN`), or resources are missing.
    pub fn create() -> io::Result<Self> {
        in_thread(|| {
            unshare(UnshareFlags::NEWNET)?;
            Self::current()
        })
    }

    /// Creates a namespace that has nothing but a loopback interface with this MTU, which is up.
    ///
    /// # Errors
    /// As [`NetworkNamespace::create`].
    pub fn with_loopback(mtu: u32) -> io::Result<Self> {
        let namespace = Self::create()?;
        namespace.inside(|| Routing::open()?.set_up_with_mtu(interface_index("lo")?, mtu))?;
        Ok(namespace)
    }

    /// An empty namespace with the rights that it needs: an ordinary user becomes root in a user namespace of this process, which is returned too.
    pub(crate) fn create_as_root() -> Result<(Self, bool), Error> {
        let refused = |source| Error::Namespace { source };
        match Self::create() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                become_root().map_err(refused)?;
                Ok((Self::create().map_err(refused)?, true))
            }
            other => Ok((other.map_err(refused)?, false)),
        }
    }

    /// The namespace of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// Another reference to the same namespace.
    ///
    /// # Errors
    /// The system is out of file descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Moves the calling thread into it; sockets and processes that the thread creates from now on belong there.
    pub(crate) fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(
            self.0.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    /// Calls `work` inside, on a thread of its own so that the caller stays outside. Sockets and processes created
    /// there stay inside.
    ///
    /// # Errors
    /// Errors of `work`, and the system's if it refuses the namespace or a thread.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        in_thread(|| {
            self.enter()?;
            work()
        })
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives the calling thread new namespaces.
#[expect(
    unsafe_code,
    reason = "the binding is unsafe for the sake of CLONE_FILES"
)]
pub(crate) fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    debug_assert!(!namespaces.contains(UnshareFlags::FILES));
    // SAFETY: only descriptor tables that are no longer shared are dangerous, and no caller asks for that.
    Ok(unsafe { unshare_unsafe(namespaces) }?)
}

/// Makes this process root in a user namespace of its own, in which an ordinary user may make network namespaces.
/// Works only while the process has a single thread.
fn become_root() -> io::Result<()> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    // A program with capabilities of its file is not dumpable, and its files in /proc belong to root.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    unshare(UnshareFlags::NEWUSER)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}

fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    })
}
