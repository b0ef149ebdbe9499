//! Listening local stream sockets at a path: the place may be mistyped, so nothing is removed there but a socket that no process serves any
//! more.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// How often a lock that another process has is tried, and how long each time is waited: a second in all.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

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
        let _lock = match Lock::take(path) {
            // Where no file can be made there will be no socket either, and the reason is told of that.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            lock => Some(lock?),
        };
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

    /// Path of the socket.
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

/// The right to replace the socket at a path. Without it, one of two processes that start at once could take the other's new socket,
/// which does not listen yet, for one that was left behind.
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(socket: &Path) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..TRIES {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Who had it before has removed the file that was opened here.
                Ok(()) if is_at(&file, &path) => return Ok(Self { path, _file: file }),
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                Err(rustix::io::Errno::INTR) => {}
                // A file system without locks, as some over a network: then it is for who starts processes not to start two at once.
                Err(_) => return Ok(Self { path, _file: file }),
            }
        }
        Err(in_use("another process is about to listen there"))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // One that stays is locked by the next process.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let [opened, there] = [file.metadata(), std::fs::symlink_metadata(path)];
    let place = |found: std::fs::Metadata| (found.dev(), found.ino());
    opened.is_ok_and(|opened| there.is_ok_and(|there| place(opened) == place(there)))
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Two gateways that are started at once after one was killed.
    #[test]
    fn of_several_that_listen_at_once_over_a_dead_socket_one_does() {
        const PROCESSES: usize = 4;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let folder = std::env::temp_dir().join(format!("starhaul-socket-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("s");
        for _ in 0..50 {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let barrier = Barrier::new(PROCESSES);
            let listen = || {
                let _runtime = runtime.enter();
                barrier.wait();
                LocalSocketFile::listen(&path)
            };
            let tried: Vec<_> = std::thread::scope(|scope| {
                let all = [(); PROCESSES].map(|()| scope.spawn(listen));
                Vec::from(all.map(|one| one.join().unwrap()))
            });
            let refused = tried.iter().filter_map(|one| one.as_ref().err());
            let refused: Vec<_> = refused.map(io::Error::kind).collect();
            assert_eq!(refused, [io::ErrorKind::AddrInUse; PROCESSES - 1]);
            std::os::unix::net::UnixStream::connect(&path).unwrap();
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }
}
