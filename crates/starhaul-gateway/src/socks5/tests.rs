//! Clients that speak SOCKS5 in one breath, byte by byte, or not at all.

use proptest::prelude::*;

use super::*;
use crate::{config::Credentials, target::Target};

fn login() -> Option<Credentials> {
    Some(Credentials {
        username: "me".into(),
        password: "hush".into(),
        file: None,
    })
}

/// Feeds `bytes` in chunks of `piece` bytes; gives all that is to be sent, and the last step that is not `Send`.
fn converse(
    credentials: Option<Credentials>,
    bytes: &[u8],
    piece: usize,
) -> (Vec<u8>, Step, Vec<u8>) {
    let mut handshake = Handshake::new(credentials);
    let mut sent = Vec::new();
    let mut end = Step::Read;
    for piece in bytes.chunks(piece.max(1)) {
        handshake.handle(piece);
        while end == Step::Read {
            match handshake.poll() {
                Step::Read => break,
                Step::Send(bytes) => sent.extend(bytes),
                step => end = step,
            }
        }
    }
    (sent, end, handshake.into_rest())
}

fn request(command: Command, target: &str) -> Step {
    let target = match target.rsplit_once(':') {
        Some((host, "0")) => Target {
            host: crate::target::Host::parse(host).unwrap(),
            port: 0,
        },
        _ => target.parse().unwrap(),
    };
    Step::Request(Request { command, target })
}

#[test]
fn handshakes_in_any_pieces() {
    let refused = |reply: u8| vec![5, reply, 0, 1, 0, 0, 0, 0, 0, 0];
    let name = b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x00\x50";
    let ipv6 = [
        &b"\x05\x02\x02\x00\x05\x01\x00\x04\x20\x01\x0d\xb8"[..],
        &[0; 11],
        b"\x01\x01\xbb",
    ]
    .concat();
    for (credentials, bytes, sent, end) in [
        (
            None,
            &name[..],
            &[5, 0][..],
            request(Command::Connect, "example.org:80"),
        ),
        (
            None,
            &ipv6,
            &[5, 0],
            request(Command::Connect, "[2001:db8::1]:443"),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00",
            &[5, 0],
            request(Command::UdpAssociate, "0.0.0.0:0"),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x01\x00\x03\x09127.0.0.1\x00\x50",
            &[5, 0],
            request(Command::Connect, "127.0.0.1:80"),
        ),
        (
            login(),
            b"\x05\x02\x00\x02\x01\x02me\x04hush\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50",
            &[5, 2, 1, 0],
            request(Command::Connect, "127.0.0.1:80"),
        ),
        (
            login(),
            b"\x05\x01\x02\x01\x02me\x04hash",
            &[5, 2],
            Step::Refuse(vec![1, 1], SocksError::Login),
        ),
        (
            login(),
            b"\x05\x01\x02\x01\x02me\x05hush!",
            &[5, 2],
            Step::Refuse(vec![1, 1], SocksError::Login),
        ),
        (
            login(),
            b"\x05\x01\x02\x01\x02me\x00",
            &[5, 2],
            Step::Refuse(vec![1, 1], SocksError::Login),
        ),
        (
            login(),
            b"\x05\x01\x00",
            &[],
            Step::Refuse(vec![5, 255], SocksError::NoMethod),
        ),
        (
            None,
            b"\x05\x01\x02",
            &[],
            Step::Refuse(vec![5, 255], SocksError::NoMethod),
        ),
        (
            None,
            b"\x05\x00",
            &[],
            Step::Refuse(vec![5, 255], SocksError::NoMethod),
        ),
        (
            None,
            b"\x04\x01\x00\x50",
            &[],
            Step::Refuse(vec![], SocksError::Version(4)),
        ),
        (
            None,
            b"GET / HTTP/1.1\r\n",
            &[],
            Step::Refuse(vec![], SocksError::Version(b'G')),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50",
            &[5, 0],
            Step::Refuse(refused(7), SocksError::Command(2)),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x01\x00\x02",
            &[5, 0],
            Step::Refuse(refused(8), SocksError::AddressType(2)),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50",
            &[5, 0],
            Step::Refuse(refused(4), SocksError::Name),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x01\x00\x03\x03a b\x00\x50",
            &[5, 0],
            Step::Refuse(refused(4), SocksError::Name),
        ),
        (
            None,
            b"\x05\x01\x00\x05\x01\x00\x03\x0bexample",
            &[5, 0],
            Step::Read,
        ),
    ] {
        for piece in [1, 3, bytes.len()] {
            let (got, step, _) = converse(credentials.clone(), bytes, piece);
            assert_eq!(
                (got.as_slice(), &step),
                (sent, &end),
                "{bytes:?} in pieces of {piece}"
            );
        }
    }
}

#[test]
fn data_behind_the_request_is_kept() {
    let (_, _, rest) = converse(
        None,
        b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50GET /",
        100,
    );
    assert_eq!(rest, b"GET /");
}

#[test]
fn an_endless_client_is_refused() {
    let mut handshake = Handshake::new(None);
    for _ in 0..1000 {
        handshake.handle(&[5; 1000]);
    }
    assert_eq!(handshake.poll(), Step::Refuse(vec![], SocksError::TooLong));
}

#[test]
fn datagrams_have_a_target_and_no_fragments() {
    let (target, data) = read_datagram(b"\x00\x00\x00\x03\x04host\x00\x35data").unwrap();
    assert_eq!(
        (target.to_string().as_str(), data),
        ("host:53", &b"data"[..])
    );
    let mut addressed = Vec::new();
    write_address(&target, &mut addressed);
    addressed.extend(data);
    assert_eq!(
        write_datagram(&addressed),
        b"\x00\x00\x00\x03\x04host\x00\x35data"
    );
    for (datagram, error) in [
        (
            &b"\x00\x00\x01\x01\x7f\x00\x00\x01\x00\x35x"[..],
            SocksError::Fragment,
        ),
        (b"\x00\x00", SocksError::Truncated),
        (
            b"\x00\x00\x00\x01\x7f\x00\x00\x01\x00",
            SocksError::Truncated,
        ),
        (b"\x00\x00\x00\x09", SocksError::AddressType(9)),
    ] {
        assert_eq!(read_datagram(datagram), Err(error), "{datagram:?}");
    }
}

#[test]
fn replies_carry_the_bound_address() {
    assert_eq!(
        Reply::Succeeded.message("192.0.2.1:80".parse().unwrap()),
        b"\x05\x00\x00\x01\xc0\x00\x02\x01\x00\x50"
    );
    let v6 = Reply::ConnectionRefused.message("[::1]:1".parse().unwrap());
    assert_eq!((v6.len(), &v6[..4]), (22, &b"\x05\x05\x00\x04"[..]));
    for code in 0..=8 {
        assert_eq!(Reply::from_code(code).code(), code);
    }
    assert_eq!(Reply::from_code(200), Reply::GeneralFailure);
}

proptest! {
    /// However the bytes are cut, the conversation is the same; nothing panics.
    #[test]
    fn pieces_do_not_matter(
        start in prop::sample::select(vec![&b""[..], b"\x05\x01\x00", b"\x05\x01\x00\x05\x01\x00", b"\x05\x01\x02\x01"]),
        random in prop::collection::vec(any::<u8>(), 0..400),
        with_login in any::<bool>(),
        piece in 1usize..50,
    ) {
        let credentials = if with_login { login() } else { None };
        let bytes = [start, &random].concat();
        let (sent, end, _) = converse(credentials.clone(), &bytes, piece);
        let (sent_at_once, end_at_once, _) = converse(credentials, &bytes, bytes.len());
        prop_assert_eq!((sent, end), (sent_at_once, end_at_once));
    }

    #[test]
    fn any_datagram_is_read_or_refused(datagram in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok((target, data)) = read_datagram(&datagram) {
            // Reading what is written again gives the same: an echo would reach the client.
            let mut again = Vec::new();
            write_address(&target, &mut again);
            again.extend(data);
            let echoed = write_datagram(&again);
            prop_assert_eq!(read_datagram(&echoed).unwrap(), (target, data));
        }
    }
}
