//! Clients that stop reading, beside a download.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{gateway, gateway::Pair, network::Network, transfer::Transfer};

const CLIENTS: usize = 200;

/// A server that sends to every client without end, until it is stopped.
fn serve(listener: &TcpListener, enough: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    let mut clients: Vec<TcpStream> = Vec::new();
    let chunk = vec![7; 64 << 10];
    while !enough.load(Ordering::Relaxed) {
        if let Ok((client, _)) = listener.accept() {
            client.set_nonblocking(true).unwrap();
            clients.push(client);
        }
        let mut wrote = false;
        for client in &mut clients {
            match client.write(&chunk) {
                Ok(written) => wrote |= written > 0,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        if !wrote {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn two_hundred_clients_that_stop_reading_do_not_hold_up_a_download() {
    let Some(network) = Network::create(1) else {
        return;
    };
    let rule =
        "[[tcp]]\nname = \"paused\"\nlisten = \"127.0.0.1:8081\"\ntarget = \"127.0.0.1:8001\"\n";
    let pair = Pair::start_with(&network, &gateway::paths(&network), rule, "");
    pair.wait_until_up(&["link0"]);
    let listener = network
        .ground
        .inside(|| TcpListener::bind("127.0.0.1:8001"))
        .unwrap();
    let enough = Arc::new(AtomicBool::new(false));
    let server = {
        let enough = enough.clone();
        thread::spawn(move || serve(&listener, &enough))
    };
    let (before, size) = (Transfer::download(&network), 2 << 20);
    before.wait_for_progress(size);
    let paused: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let connect = || TcpStream::connect("127.0.0.1:8081");
            let mut client = network.field.inside(connect).unwrap();
            client.read_exact(&mut [0; 1000]).unwrap();
            client
        })
        .collect();
    // Transfers that ran before and new ones progress while the stalled clients hold their data.
    before.wait_for_progress(4 * size);
    before.finish();
    let during = Transfer::download(&network);
    during.wait_for_progress(4 * size);
    during.finish();
    enough.store(true, Ordering::Relaxed);
    server.join().unwrap();
    drop(paused);
}
