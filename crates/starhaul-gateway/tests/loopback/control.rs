//! Who may hold the control socket, and for how long.

use std::{fs::Permissions, io::Read as _, os::unix::fs::PermissionsExt as _, path::Path, thread};

use rustix::{io::Errno, process::Uid, thread::set_thread_uid};
use starhaul_gateway::{Config, Gateway, ask_status};
use starhaul_needs::{Need, skip};
use starhaul_quic::Identity;
use tokio::net::UnixStream;

use super::gateways::{head, run};

/// A gateway with its control socket in this folder.
async fn with_control(folder: &Path, top: &str) -> Gateway {
    let head = head(&Identity::generate(), "far", &Identity::generate());
    let head = head.replace("\"off\"", "\"control.sock\"");
    let text = format!("listen = \"127.0.0.1:0\"\n{top}{head}");
    let config = Config::parse(&text, &folder.join("test.toml")).unwrap();
    Gateway::start(config).await.unwrap()
}

#[test]
fn clients_that_take_no_answers_do_not_keep_their_places() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let gateway = with_control(folder.path(), "").await;
        let socket = folder.path().join("control.sock");
        // As many as there are places: each asks for more than the kernel holds of answers.
        let mut holders = Vec::new();
        for _ in 0..16 {
            let client = UnixStream::connect(&socket).await.unwrap();
            client.writable().await.unwrap();
            let requests = "{\"request\":\"status\"}\n".repeat(5_000);
            client.try_write(requests.as_bytes()).unwrap();
            holders.push(client);
        }
        // Each time it waits for five seconds.
        while ask_status(&socket).await.is_err() {}
        drop(holders);
        gateway.shutdown().await;
    });
}

/// Members of the group come and come again: the owner still has a place.
#[test]
fn those_who_may_only_read_take_no_place_of_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    run(async {
        let group = rustix::process::getegid().as_raw();
        let top = format!("control_group = \"{group}\"\n");
        let gateway = with_control(folder.path(), &top).await;
        let socket = folder.path().join("control.sock");
        let place = socket.clone();
        // The user of a thread ends with it.
        let members = thread::spawn(move || {
            set_thread_uid(Uid::from_raw(65_533))?;
            let member = || std::os::unix::net::UnixStream::connect(&place);
            let mut members: Vec<_> = (0..40).map(|_| member().unwrap()).collect();
            let mut said = String::new();
            members[39].read_to_string(&mut said).unwrap();
            assert!(said.contains("too many ask at once"), "{said}");
            Ok::<_, Errno>(members)
        });
        let members = tokio::task::spawn_blocking(|| members.join().unwrap());
        match members.await.unwrap() {
            Ok(members) => {
                // Within the time for which their places are theirs.
                ask_status(&socket).await.unwrap();
                drop(members);
            }
            Err(error) => skip(Need::Setpriv, error),
        }
        gateway.shutdown().await;
    });
}
