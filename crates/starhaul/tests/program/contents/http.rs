//! A small HTTP server, for what `curl` downloads and uploads.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// It answers each GET with one content, and keeps what is PUT. It ends with the test program.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    uploads: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    pub(super) fn start(content: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let uploads = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let (content, kept) = (Arc::new(content), Arc::clone(&uploads));
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (content, kept) = (Arc::clone(&content), Arc::clone(&kept));
                // What a connection breaks by shows at its client.
                thread::spawn(move || answer(tcp, &content, &kept));
            }
        });
        Self { address, uploads }
    }

    /// What was uploaded since the last call, in the order in which it was complete.
    pub(super) fn take_uploads(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.uploads.lock().unwrap())
    }
}

/// Answers one request.
fn answer(tcp: TcpStream, content: &[u8], kept: &Mutex<Vec<Vec<u8>>>) -> io::Result<()> {
    let mut reader = BufReader::new(tcp.try_clone()?);
    let mut writer = tcp;
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let (mut bytes, mut waits) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        match line.split_once(':') {
            Some(("content-length", length)) => bytes = length.trim().parse().unwrap_or(0),
            Some(("expect", _)) => waits = true,
            Some(_) => {}
            None => break,
        }
    }
    let (status, body) = if request.starts_with("PUT ") {
        if waits {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut body = vec![0; bytes];
        reader.read_exact(&mut body)?;
        kept.lock().unwrap().push(body);
        ("201 Created", &[][..])
    } else {
        ("200 OK", content)
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    writer.write_all(head.as_bytes())?;
    writer.write_all(body)?;
    writer.shutdown(Shutdown::Write)
}
