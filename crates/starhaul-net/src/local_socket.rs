//! Listening local stream sockets at a path: the place may be mistyped, so nothing is removed there but a socket that
//! nobody serves any more.

use std::{
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// The file of a listening socket, which goes with this, unless another one has taken its place.
#[derive(Debug)]
pub struct LocalSocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl LocalSocketFile {
    /// Listens at `path`, for the user of this process alone. Missing folders are made; what a process that was killed left
    /// there is replaced. To be called on a tokio runtime.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::AddrInUse`] if a process listens there, [`io::ErrorKind::AlreadyExists`] if
    /// something else is there.
    pub fn listen(path: &Path) -> io::Result<(Self, UnixListener)> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_free(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        let made = std::fs::symlink_metadata(path)?;
        let file = Self {
            path: path.to_owned(),
            device: made.dev(),
            inode: made.ino(),
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok((file, listener))
    }

    /// Whether a socket may be made at `path`, as far as its file says: nothing is there, or a socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`].
    pub fn check(path: &Path) -> io::Result<()> {
        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket is there; name another path, or remove it",
            )),
            _ => Ok(()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalSocketFile {
    fn drop(&mut self) {
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (self.device, self.inode)) {
            // What cannot be removed is replaced by the next one that listens there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket file of a process that was killed, and no other file.
fn make_free(path: &Path) -> io::Result<()> {
    LocalSocketFile::check(path)?;
    // A process that listens and is busy must not hold this one up.
    let caller = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match caller.connect(&SockAddr::unix(path)?) {
        Ok(()) => Err(in_use("another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(in_use("another process listens there, and is busy"))
        }
        // One that this process may not connect to.
        Err(error) => Err(error),
    }
}

fn in_use(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, why)
}
