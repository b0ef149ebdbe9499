//! Neighbours of a relay whose address is a name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{fs, net::UdpSocket, thread, time::Duration};

use starhaul_config::shared_secret;
use starhaul_contents::{
    ContentSecret, Fetching, NeighbourKey, Relay, ServeOptions, Server, config::Config,
};

/// One name that has no address keeps a relay from nothing, and an address that is silent no requester.
#[test]
fn a_content_comes_from_a_server_with_a_name_while_another_name_does_not_resolve() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a.key", "b.key", "c.key", "secret"] {
        fs::write(at(name), format!("0123456789abcdef {name}\n")).unwrap();
    }
    fs::write(at("content"), vec![7; 100_000]).unwrap();
    let key = |name: &str| NeighbourKey::new(&shared_secret(&at(name)).unwrap());
    let secret = || ContentSecret::new(&shared_secret(&at("secret")).unwrap());
    let options = ServeOptions {
        root: at("content"),
        listen: "127.0.0.1:0".parse().unwrap(),
        packet_bytes: None,
        neighbours: vec![key("a.key")],
        secret: secret(),
    };
    let mut server = Server::open(options, |_| {}).unwrap();
    let port = server.local_addr().port();
    // Both end with the process.
    thread::spawn(move || server.run());
    let text = format!(
        "listen = \"127.0.0.1:0\"\nupstream = \"up\"\n\
         [[neighbour]]\nname = \"up\"\naddress = \"localhost:{port}\"\nkey = \"a.key\"\n\
         [[neighbour]]\nname = \"down\"\nkey = \"b.key\"\n\
         [[neighbour]]\nname = \"nowhere\"\naddress = \"nowhere.invalid:4511\"\nkey = \"c.key\"\n"
    );
    let config = Config::parse(&text, &at("relay.toml")).unwrap();
    let mut relay = Relay::open(config, false).unwrap();
    let from = relay.local_addr();
    thread::spawn(move || relay.run());
    // The first address of a name with several may be one at which no host answers.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fetching = Fetching {
        name: "content".into(),
        from: vec![silent.local_addr().unwrap(), from],
        key: key("b.key"),
        secret: secret(),
        into: at("into"),
        patience: Duration::from_secs(60),
    };
    fetching.run(|_| {}).unwrap();
    assert_eq!(
        fs::read(at("into")).unwrap(),
        fs::read(at("content")).unwrap()
    );
}
