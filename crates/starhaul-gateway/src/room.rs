//! Room in the kernel for what a TCP connection is sent: bytes are taken from what carries them, which counts and bounds them, when
//! the kernel takes them too. An application that does not read then holds no memory of ours beyond that.

use std::io;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use socket2::SockRef;
use tokio::{io::Interest, net::TcpStream};

/// The least that is passed on at once: less costs more than it spares.
const LEAST: usize = 4 << 10;
/// A buffer of this size takes as much as any reader gives at once; it does not become smaller.
const AMPLE: usize = 1 << 20;

/// What a write may take of the kernel's buffer besides twice its bytes.
const WRITE_OVERHEAD: usize = 4 << 10;

/// What is known of the room of a connection.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// The size of the kernel's buffer when it was asked last.
    buffer: Option<usize>,
    /// What all writes together may take of it, if the other end has received nothing.
    taken: usize,
}

/// How much the kernel takes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    /// Whatever a reader gives at once.
    All,
    /// So many bytes.
    Some(usize),
}

impl Room {
    /// Waits until a third of the kernel's buffer is free, and says how much fits then. As long as so little was written that it must be, it
    /// does not ask the kernel. Cancelling loses nothing.
    ///
    /// # Errors
    /// The system's. A connection that has ended is ready: writing tells why.
    pub(crate) async fn wait(&mut self, tcp: &TcpStream) -> io::Result<Fits> {
        let roomy = |buffer: &usize| self.taken <= buffer / 3 * 2;
        let buffer = match self.buffer.filter(roomy) {
            Some(buffer) => buffer,
            None => {
                if self.taken > 0 {
                    until_writable(tcp).await?;
                }
                self.ask_size(tcp)?
            }
        };
        Ok(match buffer < AMPLE {
            // The kernel counts its own overhead, too.
            true => Fits::Some((buffer / 4).max(LEAST)),
            false => Fits::All,
        })
    }

    /// So many bytes were written with one call.
    pub(crate) fn on_written(&mut self, bytes: usize) {
        let takes = bytes.saturating_mul(2).saturating_add(WRITE_OVERHEAD);
        self.taken = self.taken.saturating_add(takes);
    }

    fn ask_size(&mut self, tcp: &TcpStream) -> io::Result<usize> {
        let buffer = match self.buffer.filter(|buffer| *buffer >= AMPLE) {
            Some(buffer) => buffer,
            None => SockRef::from(tcp).send_buffer_size()?,
        };
        self.buffer = Some(buffer);
        Ok(buffer)
    }
}

async fn until_writable(tcp: &TcpStream) -> io::Result<()> {
    loop {
        tcp.writable().await?;
        // It tells what was once so: the kernel is asked, and where there is no room now, that is forgotten.
        let asked = tcp.try_io(Interest::WRITABLE, || match is_writable(tcp)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        });
        match asked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            asked => return asked,
        }
    }
}

/// Whether a third of the send buffer is free (`sk_stream_is_writeable`), or the connection has ended.
fn is_writable(tcp: &TcpStream) -> io::Result<bool> {
    let mut asked = [PollFd::new(tcp, PollFlags::OUT)];
    loop {
        // Where there is no room, asking makes the kernel tell when there is.
        match poll(&mut asked, Some(&Timespec::default())) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use super::*;

    /// A reader that stands still, with the kernel's own buffers and with small ones.
    #[tokio::test]
    async fn what_is_said_to_fit_is_taken_whole_until_the_reader_has_had_enough() {
        const GIVEN_AT_ONCE: usize = 256 << 10;
        for buffer in [None, Some(16 << 10), Some(200 << 10)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (reader, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (mut reader, writer) = (reader.unwrap(), accepted.unwrap().0);
            if let Some(bytes) = buffer {
                SockRef::from(&writer).set_send_buffer_size(bytes).unwrap();
            }
            writer.writable().await.unwrap();
            let (mut room, mut written) = (Room::default(), 0);
            while is_writable(&writer).unwrap() {
                let bytes = match room.wait(&writer).await.unwrap() {
                    Fits::All => GIVEN_AT_ONCE,
                    Fits::Some(bytes) => bytes,
                };
                let taken = writer.try_write(&vec![7; bytes]).unwrap();
                assert_eq!(taken, bytes, "{buffer:?}: after {written} bytes");
                room.on_written(taken);
                written += taken;
            }
            // Once the reader goes on there is room again.
            let drain = async {
                let mut data = vec![0; 64 << 10];
                while written > 0 {
                    written -= reader.read(&mut data).await.unwrap();
                }
            };
            let (found, ()) = tokio::join!(room.wait(&writer), drain);
            found.unwrap();
        }
    }

    /// A buffer that may be full already is not trusted, however it was filled: by large writes, or by many small ones.
    #[tokio::test]
    async fn the_kernel_is_asked_before_its_buffer_can_be_full() {
        for bytes in [1, 5_000] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (reader, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (_stands_still, writer) = (reader.unwrap(), accepted.unwrap().0);
            SockRef::from(&writer)
                .set_send_buffer_size(100_000)
                .unwrap();
            writer.set_nodelay(true).unwrap();
            writer.writable().await.unwrap();
            let mut room = Room::default();
            room.wait(&writer).await.unwrap();
            let mut written = 0;
            // Until the receiver's buffer is full, too, what was written goes on and leaves room.
            let mut still = Duration::ZERO;
            while still < Duration::from_millis(100) {
                match writer.try_write(&vec![7; bytes]) {
                    Ok(taken) => {
                        room.on_written(taken);
                        written += taken;
                        still = Duration::ZERO;
                    }
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        still += Duration::from_millis(10);
                    }
                }
            }
            let waited = tokio::time::timeout(Duration::from_millis(200), room.wait(&writer));
            let waited = waited.await;
            assert!(waited.is_err(), "room behind {written} bytes: {waited:?}");
        }
    }

    #[tokio::test]
    async fn one_who_has_gone_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (reader, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let writer = accepted.unwrap().0;
        writer.writable().await.unwrap();
        while is_writable(&writer).unwrap() {
            writer.try_write(&vec![7; 64 << 10]).unwrap();
        }
        let mut room = Room::default();
        room.on_written(1);
        // With what it has not read, which makes it a reset.
        let go = async { drop(reader) };
        let (found, ()) = tokio::join!(room.wait(&writer), go);
        found.unwrap();
        let lost = loop {
            match writer.try_write(&[7]) {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error.kind(),
            }
        };
        assert_ne!(lost, io::ErrorKind::WouldBlock);
    }
}
