//! Waits for sockets, wake-ups from other threads and exact instants at once. `ppoll` takes nanoseconds, and without
//! timer slack it returns some 10–60 µs after the requested instant.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, read, write},
};

use crate::{Error, UdpSocket};

/// Waits for events on behalf of one thread.
#[derive(Debug)]
pub struct Poller {
    wakeup: Arc<Wakeup>,
    readiness: Vec<Readiness>,
}

/// Ends the wait of a [`Poller`] from any thread. Clones wake the same poller.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wakeup>);

/// The readiness of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// There is a datagram to receive, or an error to collect.
    pub readable: bool,
    /// There is room to send; reported only if requested.
    pub writable: bool,
}

#[derive(Debug)]
struct Wakeup {
    event: OwnedFd,
    /// Saves the system call while an earlier wake-up has not been consumed.
    pending: AtomicBool,
}

impl Poller {
    /// Creates a poller; each [`Poller::wait`] names its sockets.
    ///
    /// # Errors
    /// [`Error::System`] when no file descriptor is left.
    pub fn new() -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(system)?;
        Ok(Self {
            wakeup: Arc::new(Wakeup {
                event,
                pending: AtomicBool::new(false),
            }),
            readiness: Vec::new(),
        })
    }

    /// A handle that ends the current wait, or the next one if the thread is not waiting.
    pub fn waker(&self) -> Waker {
        Waker(self.wakeup.clone())
    }

    /// Blocks until a socket is readable (or writable, for those marked `true`), a [`Waker`] was used, or `deadline`
    /// has come. Returns one entry per socket, in the order given.
    ///
    /// # Errors
    /// [`Error::System`] when the system cannot poll so many descriptors.
    pub fn wait(
        &mut self,
        sockets: &[(&UdpSocket, bool)],
        deadline: Option<Instant>,
    ) -> Result<&[Readiness], Error> {
        let fds: Vec<_> = sockets
            .iter()
            .map(|(socket, write)| (socket.as_fd(), *write))
            .collect();
        self.wait_fds(&fds, deadline)
    }

    /// As [`Poller::wait`] for descriptors of any kind.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub fn wait_fds(
        &mut self,
        sockets: &[(BorrowedFd<'_>, bool)],
        deadline: Option<Instant>,
    ) -> Result<&[Readiness], Error> {
        self.readiness.clear();
        let mut fds = Vec::with_capacity(sockets.len() + 1);
        fds.push(PollFd::new(&self.wakeup.event, PollFlags::IN));
        for (socket, want_write) in sockets {
            let interest = match want_write {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(*socket, interest));
        }
        let timeout = deadline.map(|deadline| {
            let wait = deadline.saturating_duration_since(Instant::now());
            Timespec::try_from(wait.min(LONGEST_WAIT)).unwrap_or_default()
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(system(errno)),
        }
        let mut revents = fds.iter().map(PollFd::revents);
        if revents.next().is_some_and(|wakeup| !wakeup.is_empty()) {
            let _ = read(&self.wakeup.event, &mut [0; 8]);
            // After the read: until here other threads rely on the descriptor being readable.
            self.wakeup.pending.store(false, Ordering::SeqCst);
        }
        self.readiness.extend(revents.map(|events| Readiness {
            readable: events.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP),
            writable: events.contains(PollFlags::OUT),
        }));
        Ok(&self.readiness)
    }
}

impl Waker {
    /// Ends the wait; cheap when the poller has not yet seen an earlier call.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::SeqCst) {
            // Cannot fail: the counter would have to overflow, and it is read before it is written again.
            let _ = write(&self.0.event, &1u64.to_ne_bytes());
        }
    }
}

/// Keeps the conversion to `timespec` in range; a longer wait is interrupted once an hour.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

fn system(errno: Errno) -> Error {
    Error::System(errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BindOptions, Transmit};

    #[test]
    fn a_wake_before_the_wait_is_not_lost_and_counts_once() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        waker.wake();
        waker.clone().wake();
        poller.wait(&[], None).unwrap(); // would hang if the wake-up were lost
        let deadline = Instant::now() + Duration::from_millis(5);
        poller.wait(&[], Some(deadline)).unwrap();
        assert!(Instant::now() >= deadline, "woken twice");
        std::thread::spawn(move || waker.wake());
        poller.wait(&[], None).unwrap();
    }

    #[test]
    fn names_the_socket_that_is_ready() {
        let bind = || UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let (quiet, busy) = (bind(), bind());
        let transmit = Transmit {
            to: busy.local_addr(),
            from: None,
            ecn: 0,
            contents: b"x",
            segment_size: 1,
        };
        quiet.try_send(&transmit).unwrap();
        let mut poller = Poller::new().unwrap();
        let ready = poller.wait(&[(&quiet, false), (&busy, true)], None);
        let [first, second] = ready.unwrap() else {
            panic!("one answer per socket")
        };
        assert!(!first.readable && !first.writable, "{first:?}");
        assert!(second.readable && second.writable, "{second:?}");
    }
}
