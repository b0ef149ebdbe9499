//! Messages over TCP, each answered before the next is sent: what a person at a terminal waits for. The path may lead through
//! gateways, which take the connection for that of any application.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::{Error, kit::statistics::percentile};

/// TCP port of a server that names none.
pub const PORT: u16 = 5203;
const MESSAGE_BYTES: usize = 64;
/// Connections of a server at once.
const MOST_CONNECTIONS: usize = 64;
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// No answer takes longer, and a server keeps no connection that is silent for longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends back what comes, until the process ends.
#[derive(Debug)]
pub struct EchoServer {
    listener: TcpListener,
    controller: Option<String>,
}

impl EchoServer {
    /// Listens; `controller` is one of the kernel's by its own name, for what is sent back.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(listen: SocketAddr, controller: Option<String>) -> Result<Self, Error> {
        let listener = TcpListener::bind(listen);
        let listener = listener.map_err(Error::io(format!("cannot listen on TCP {listen}")))?;
        Ok(Self {
            listener,
            controller,
        })
    }

    /// Where it listens, if the system tells.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves, at most 64 connections at once. Connections that the system cannot accept, or has no thread for, are refused.
    pub fn run(&self) -> ! {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let (tcp, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // What is short, such as descriptors, is short for a while.
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                open.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(%from, "refused: {MOST_CONNECTIONS} connections are open");
                continue;
            }
            let (counted, controller) = (Arc::clone(&open), self.controller.clone());
            let serving = thread::Builder::new().spawn(move || {
                if let Err(error) = echo(tcp, controller.as_deref()) {
                    tracing::warn!(%from, %error, "a connection ended early");
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            });
            if let Err(error) = serving {
                open.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(%from, %error, "refused: there is no thread for it");
            }
        }
    }
}

/// A dialogue with an [`EchoServer`].
#[derive(Clone, Debug)]
pub struct Dialogue {
    /// Where it is, or a gateway that leads there.
    pub server: SocketAddr,
    /// A controller of the kernel by its own name.
    pub controller: Option<String>,
    /// Time for which messages are sent.
    pub time: Duration,
}

/// From the sending of a message until its answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// How many messages there were; the first, which may wait for the path, is left out.
    pub messages: u64,
    /// The time of half of them at most, in milliseconds.
    pub p50_ms: f64,
    /// The time of all but a hundredth.
    pub p99_ms: f64,
    /// The time of all.
    pub greatest_ms: f64,
}

impl Dialogue {
    /// Sends a message of 64 bytes whenever the last one was answered.
    ///
    /// # Errors
    /// The server cannot be reached, ends the connection, answers something else or not within 60 s, or no message but the first within
    /// the time.
    pub fn run(&self) -> Result<Answered, Error> {
        let server = self.server;
        let failed = || Error::io(format!("the dialogue with {server}"));
        let connected = TcpStream::connect_timeout(&server, PATIENCE);
        let mut tcp = connected.map_err(Error::io(format!("cannot reach {server}")))?;
        prepare(&tcp, self.controller.as_deref())?;
        let (began, mut times) = (Instant::now(), Vec::new());
        let mut number = 0_u64;
        while began.elapsed() < self.time {
            let message = message(number);
            let sent = Instant::now();
            tcp.write_all(&message).map_err(failed())?;
            let mut answer = [0; MESSAGE_BYTES];
            tcp.read_exact(&mut answer).map_err(failed())?;
            if answer != message {
                return Err(Error::Failed(format!(
                    "{server} answered something else than what it was sent: is it starhaul lab echo server?"
                )));
            }
            if number > 0 {
                times.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            number += 1;
        }
        if times.is_empty() {
            return Err(Error::Failed(format!(
                "{server} answered no message but the first within {:?}: give it more time",
                self.time
            )));
        }
        times.sort_by(f64::total_cmp);
        Ok(Answered {
            messages: times.len() as u64,
            p50_ms: percentile(&times, 0.5),
            p99_ms: percentile(&times, 0.99),
            greatest_ms: percentile(&times, 1.0),
        })
    }
}

/// A message unlike those before.
fn message(number: u64) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    for (part, times) in message.chunks_exact_mut(8).zip(1_u64..) {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7) ^ times;
        part.copy_from_slice(&word.to_le_bytes());
    }
    message
}

fn echo(mut tcp: TcpStream, controller: Option<&str>) -> Result<(), Error> {
    prepare(&tcp, controller)?;
    let mut buffer = [0; 1024];
    loop {
        let read = tcp.read(&mut buffer);
        let read = match read.map_err(Error::io("cannot read"))? {
            0 => return Ok(()),
            read => buffer.get(..read).unwrap_or_default(),
        };
        tcp.write_all(read).map_err(Error::io("cannot send"))?;
    }
}

fn prepare(tcp: &TcpStream, controller: Option<&str>) -> Result<(), Error> {
    let set = || -> io::Result<()> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.set_write_timeout(Some(PATIENCE))
    };
    set().map_err(Error::io("cannot prepare a connection"))?;
    match controller {
        None => Ok(()),
        Some(name) => SockRef::from(tcp)
            .set_tcp_congestion(name.as_bytes())
            .map_err(Error::io(format!("this kernel has no controller {name:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Time for some messages, also beside tests that take all processors.
    const TIME: Duration = Duration::from_secs(1);

    fn dialogue(server: SocketAddr) -> Result<Answered, Error> {
        Dialogue {
            server,
            controller: None,
            time: TIME,
        }
        .run()
    }

    #[test]
    fn messages_are_answered_and_counted() {
        let server = EchoServer::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let address = server.address().unwrap();
        thread::spawn(move || server.run());
        let answered = dialogue(address).unwrap();
        assert!(answered.messages > 1, "{answered:?}");
        assert!(answered.p50_ms <= answered.p99_ms && answered.p99_ms <= answered.greatest_ms);
        assert!(answered.greatest_ms > 0.0, "{answered:?}");
    }

    /// The answer is that of another message.
    #[test]
    fn a_wrong_answer_is_no_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            while tcp.read_exact(&mut [0; MESSAGE_BYTES]).is_ok() {
                let _ = tcp.write_all(&message(0));
            }
        });
        let said = dialogue(address).unwrap_err().to_string();
        assert!(said.contains("something else"), "{said}");
    }
}
