//! A UDP echo responder with a socket of its own, for hosts without a gateway.

use std::{
    net::SocketAddr,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::EchoResponder;
use crate::{
    BindOptions, Error, Poller, RecvBuffer, Transmit, UdpSocket, Waker, realtime::run_first,
};

/// The responder to UDP echo probes of any client.
#[derive(Debug)]
pub struct EchoServer {
    address: SocketAddr,
    stop: Waker,
    thread: Option<thread::JoinHandle<()>>,
    stopped: Arc<AtomicBool>,
}

/// Most reads of the socket before it is asked whether it is to end.
const READS_AT_ONCE: usize = 16;
/// Longest wait without datagrams.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl EchoServer {
    /// Binds an address and answers there, on a thread of its own, until it is dropped.
    ///
    /// # Errors
    /// [`Error`] if the address cannot be bound, or the system is out of resources.
    pub fn start(address: SocketAddr) -> Result<Self, Error> {
        let socket = UdpSocket::bind(&BindOptions::new(address))?;
        let address = socket.local_addr();
        let mut secret = [0; 32];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| Error::System(std::io::Error::other("no random numbers")))?;
        let mut responder = EchoResponder::new(secret, Instant::now());
        let mut poller = Poller::new()?;
        let stop = poller.waker();
        let stopped = Arc::<AtomicBool>::default();
        let ends = stopped.clone();
        let run = move || {
            run_first();
            let mut buffer = RecvBuffer::new();
            let mut socket = Some(socket);
            while !ends.load(Ordering::SeqCst) {
                if let Some(bound) = &socket
                    && let Err(error) = answer(bound, &mut buffer, &mut responder)
                {
                    tracing::warn!(%error, "the echo's socket is gone and is bound again");
                    socket = None;
                }
                let until = Instant::now() + LONGEST_WAIT;
                let waited = match &socket {
                    Some(bound) => poller.wait_fds(&[(bound.as_fd(), false)], Some(until)),
                    None => poller.wait_fds(&[], Some(until)),
                };
                if let Err(error) = waited {
                    tracing::error!(%error, "the echo cannot go on");
                    return;
                }
                // The host may not have the address for a while.
                if socket.is_none() {
                    socket = UdpSocket::bind(&BindOptions::new(address)).ok();
                }
            }
        };
        let thread = thread::Builder::new()
            .name("starhaul-echo".into())
            .spawn(run)
            .map_err(Error::System)?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
            stopped,
        })
    }

    /// The bound address, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.stop.wake();
        // The next one that binds the address finds it free.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn answer(
    socket: &UdpSocket,
    buffer: &mut RecvBuffer,
    responder: &mut EchoResponder,
) -> Result<(), Error> {
    // A flood must not keep it from its end.
    for _ in 0..READS_AT_ONCE {
        if !socket.try_recv(buffer)? {
            break;
        }
        for datagram in buffer.datagrams() {
            let (now, clock) = (Instant::now(), SystemTime::now());
            let answer = responder.answer(now, clock, datagram.remote, datagram.payload);
            if let Some(answer) = answer {
                // A datagram that does not fit the socket's buffer is lost, as on a congested link.
                socket.try_send(&Transmit {
                    to: datagram.remote,
                    from: datagram.local,
                    ecn: 0,
                    contents: &answer,
                    segment_size: answer.len(),
                })?;
            }
        }
    }
    Ok(())
}
