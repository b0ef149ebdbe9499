//! The splice by itself, and the layer with a peer that is written out here.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::{
    CONTACT, TcpLayer,
    carry::carry,
    framing::{END, START},
    places::Places,
    splice::{Fault, LEAST_SEGMENT_MRU, Limits, Splice},
};
use crate::config::TcpConfig;

const LIMITS: Limits = Limits {
    segment: 1000,
    transfer: 2500,
};
const HEADER: [u8; CONTACT] = *b"dtn!\x04\x00";

fn init(segment_mru: u64, name: &str, items: &[u8]) -> Vec<u8> {
    let name_length = u16::try_from(name.len()).unwrap().to_be_bytes();
    let items_length = u32::try_from(items.len()).unwrap().to_be_bytes();
    [
        [7, 0, 30].as_slice(),
        &segment_mru.to_be_bytes(),
        &u64::MAX.to_be_bytes(),
        &name_length,
        name.as_bytes(),
        &items_length,
        items,
    ]
    .concat()
}

fn hello() -> Vec<u8> {
    [HEADER.as_slice(), &init(64_000, "dtn://other/", &[])].concat()
}

/// A segment that claims `claimed` bytes and has those of `data`; `items` are there if it begins a transfer.
fn segment(flags: u8, id: u64, items: &[u8], claimed: u64, data: &[u8]) -> Vec<u8> {
    let mut message = [[1, flags].as_slice(), &id.to_be_bytes()].concat();
    if flags & START != 0 {
        message.extend(u32::try_from(items.len()).unwrap().to_be_bytes());
        message.extend(items);
    }
    message.extend(claimed.to_be_bytes());
    message.extend(data);
    message
}

fn whole(flags: u8, id: u64, length: usize) -> Vec<u8> {
    segment(flags, id, &[], length as u64, &vec![7; length])
}

fn ack(flags: u8, id: u64, length: u64) -> Vec<u8> {
    [
        [2, flags].as_slice(),
        &id.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

fn refuse(id: u64) -> Vec<u8> {
    [[3, 2].as_slice(), &id.to_be_bytes()].concat()
}

/// A splice of whose ends both have greeted.
fn begun() -> Splice {
    let mut splice = Splice::new(LIMITS);
    let mut out = Vec::new();
    splice.take_from_peer(&hello(), &mut out).unwrap();
    splice.take_from_node(&hello(), &mut out).unwrap();
    assert_eq!(out, [hello(), hello()].concat());
    assert!(splice.has_session());
    splice
}

fn from_peer(splice: &mut Splice, input: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    splice.take_from_peer(input, &mut out).map(|()| out)
}

fn from_node(splice: &mut Splice, input: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    splice.take_from_node(input, &mut out).map(|()| out)
}

/// As `dtnd` acknowledges: without flags, in order.
#[test]
fn acknowledgements_get_the_flags_of_their_segments() {
    let mut splice = begun();
    for (flags, length) in [(START, 300), (0, 300), (END, 100)] {
        let sent = whole(flags, 4, length);
        assert_eq!(from_node(&mut splice, &sent), Ok(sent));
    }
    for (flags, length) in [(START, 300), (0, 600), (END, 700)] {
        let passed = from_peer(&mut splice, &ack(0, 4, length));
        assert_eq!(passed, Ok(ack(flags, 4, length)));
    }
    let sent = whole(START | END, 5, 100);
    assert_eq!(from_node(&mut splice, &sent), Ok(sent));
    // Right ones stay as they are, and so do those of no transfer: the library judges them.
    for flags in [0, START | END] {
        let passed = from_peer(&mut splice, &ack(flags, 5, 100));
        assert_eq!(passed, Ok(ack(START | END, 5, 100)));
    }
    let strange = ack(END, 9, 100);
    assert_eq!(from_peer(&mut splice, &strange), Ok(strange));
}

#[test]
fn what_claims_too_much_passes_nothing_of_its_data() {
    let mut splice = begun();
    let claimed = 1 << 40;
    let mut out = Vec::new();
    let input = segment(START | END, 1, &[], claimed, &[7; 500]);
    let fault = splice.take_from_peer(&input, &mut out);
    let most = LIMITS.segment;
    let bytes = claimed;
    assert_eq!(fault, Err(Fault::Segment { bytes, most }));
    assert!(!out.contains(&7) && splice.held() == 0, "{out:?}");

    let mut splice = begun();
    for flags in [START, 0] {
        from_peer(&mut splice, &whole(flags, 1, 1000)).unwrap();
    }
    let most = LIMITS.transfer;
    let bytes = 2501;
    assert_eq!(
        from_peer(&mut splice, &whole(END, 1, 501)),
        Err(Fault::Transfer { bytes, most })
    );

    let mut splice = Splice::new(LIMITS);
    let mut long = hello();
    let end = long.len() - 4;
    long[end..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        from_peer(&mut splice, &long),
        Err(Fault::LongExtensions(u32::MAX))
    );
    let name = "x".repeat(60_000);
    let long = [HEADER.as_slice(), &init(64_000, &name, &[])].concat();
    let fault = from_peer(&mut Splice::new(LIMITS), &long);
    assert_eq!(fault, Err(Fault::NodeId(60_000)));
}

/// Segments of no bytes would have the library send for ever.
#[test]
fn a_peer_that_takes_hardly_anything_gets_nothing() {
    for (mru, is_taken) in [(0, false), (LEAST_SEGMENT_MRU - 1, false), (512, true)] {
        let input = [HEADER.as_slice(), &init(mru, "ipn:2.0", &[])].concat();
        let taken = from_peer(&mut Splice::new(LIMITS), &input);
        let expected = match is_taken {
            true => Ok(input),
            false => Err(Fault::SegmentMru(mru)),
        };
        assert_eq!(taken, expected);
    }
}

/// The library skips what its items do not fill, or less: it would read messages where none are seen here.
#[test]
fn extension_items_fill_their_list() {
    let item =
        |length: u16, value: &[u8]| [[1, 0, 1].as_slice(), &length.to_be_bytes(), value].concat();
    let two = [item(8, &[0; 8]), item(0, &[])].concat();
    for (items, is_right) in [
        (two.clone(), true),
        ([two.as_slice(), &[0; 3]].concat(), false),
        (item(9, &[0; 8]), false),
        (vec![0; 4], false),
        (item(3, &[0; 5]), false),
    ] {
        let mut splice = begun();
        let input = segment(START | END, 1, &items, 3, &[7; 3]);
        let taken = from_peer(&mut splice, &input);
        let expected = match is_right {
            true => Ok(input),
            false => Err(Fault::Extensions),
        };
        assert_eq!(taken, expected, "{items:?}");
        let input = [HEADER.as_slice(), &init(512, "a", &items)].concat();
        let taken = from_peer(&mut Splice::new(LIMITS), &input);
        assert_eq!(taken.is_ok(), is_right, "{items:?}");
    }
}

#[test]
fn segments_out_of_order_and_other_protocols_are_faults() {
    let order: [&[Vec<u8>]; 4] = [
        &[whole(0, 1, 10)],
        &[whole(START, 1, 10), whole(START, 2, 10)],
        &[whole(START, 1, 10), whole(END, 2, 10)],
        &[whole(START | END, 1, 10), whole(END, 1, 10)],
    ];
    for messages in order {
        let taken = from_peer(&mut begun(), &messages.concat());
        assert_eq!(taken, Err(Fault::Order), "{messages:?}");
    }
    let early = [HEADER.as_slice(), &whole(START | END, 1, 10)].concat();
    assert_eq!(
        from_peer(&mut Splice::new(LIMITS), &early),
        Err(Fault::Order)
    );
    for (input, fault) in [
        (b"GET / HTTP/1.1\r\n".as_slice(), Fault::NoContact),
        (b"dtn!\x03\x00\x00".as_slice(), Fault::Version(3)),
        (b"dtn!\x04\x00\x09".as_slice(), Fault::UnknownType(9)),
        (b"dtn!\x04\x00\x00".as_slice(), Fault::UnknownType(0)),
    ] {
        assert_eq!(from_peer(&mut Splice::new(LIMITS), input), Err(fault));
    }
    // Only where both offer it.
    let mut splice = Splice::new(LIMITS);
    let offer = b"dtn!\x04\x01";
    assert!(from_peer(&mut splice, offer).is_ok());
    assert!(from_node(&mut splice, &HEADER).is_ok());
    let mut splice = Splice::new(LIMITS);
    assert!(from_peer(&mut splice, offer).is_ok());
    assert_eq!(from_node(&mut splice, offer), Err(Fault::Tls));
}

#[test]
fn what_is_held_is_given_back_when_the_node_has_it() {
    let mut splice = begun();
    // It claims them before they are here.
    from_peer(&mut splice, &segment(START, 1, &[], 1000, &[])).unwrap();
    assert_eq!(splice.held(), 1000);
    from_peer(&mut splice, &[7; 1000]).unwrap();
    from_node(&mut splice, &ack(START, 1, 1000)).unwrap();
    from_peer(&mut splice, &whole(END, 1, 200)).unwrap();
    assert_eq!(splice.held(), 1200);
    from_node(&mut splice, &ack(END, 1, 1200)).unwrap();
    assert_eq!(splice.held(), 0);
    // Refused: what was on its way still comes, and another may begin.
    from_peer(&mut splice, &whole(START, 2, 1000)).unwrap();
    from_node(&mut splice, &refuse(2)).unwrap();
    from_peer(&mut splice, &whole(0, 2, 1000)).unwrap();
    assert_eq!(splice.held(), 0);
    from_peer(&mut splice, &whole(START, 3, 10)).unwrap();
    assert_eq!(splice.held(), 10);
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![4_u8]),
        Just(vec![5_u8, 0, 0]),
        Just(vec![6_u8, 1, 2]),
        (0_u64..4).prop_map(refuse),
        (0_u8..4, 0_u64..4, 0_u64..3000).prop_map(|(flags, id, length)| ack(flags, id, length)),
        (0_u8..4, 0_u64..4, 0_usize..1100).prop_map(|(flags, id, length)| whole(flags, id, length)),
        proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

/// All that passes of a stream, and how it ends.
fn passed(
    messages: &[(bool, Vec<u8>)],
    mut next: impl FnMut(usize) -> usize,
) -> (Vec<u8>, Vec<u8>, Option<Fault>) {
    let mut splice = begun();
    let (mut to_node, mut to_peer) = (Vec::new(), Vec::new());
    for (is_peer, message) in messages {
        let mut rest = message.as_slice();
        loop {
            let (part, after) = rest.split_at(next(rest.len()).min(rest.len()));
            let taken = match is_peer {
                true => splice.take_from_peer(part, &mut to_node),
                false => splice.take_from_node(part, &mut to_peer),
            };
            if let Err(fault) = taken {
                return (to_node, to_peer, Some(fault));
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    (to_node, to_peer, None)
}

proptest! {
    /// However the bytes come, the same passes, in order and no more than came; only flags of acknowledgements differ.
    #[test]
    fn any_split_of_the_bytes_passes_the_same(
        messages in proptest::collection::vec((any::<bool>(), any_message()), 0..12),
        lengths in proptest::collection::vec(1_usize..30, 1..20),
    ) {
        let whole = passed(&messages, |all| all);
        let mut at = 0;
        let split = passed(&messages, |_| {
            at += 1;
            lengths[at % lengths.len()]
        });
        prop_assert_eq!(&whole, &split);
        for (is_peer, out) in [(true, &whole.0), (false, &whole.1)] {
            let came = messages.iter().filter(|(of_peer, _)| *of_peer == is_peer);
            let came: Vec<u8> = came.flat_map(|(_, message)| message.clone()).collect();
            prop_assert!(out.len() <= came.len());
            for (passed, came) in out.iter().zip(&came) {
                prop_assert!(passed == came || (is_peer && *passed <= START | END));
            }
        }
    }
}

async fn layer() -> (std::sync::Arc<TcpLayer>, SocketAddr) {
    let config = TcpConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        peers: Vec::new(),
        accepts_unknown: true,
    };
    let layer = TcpLayer::start(&config, 1 << 20).await.unwrap();
    let listener = layer.listener.lock();
    let address = listener.as_ref().unwrap().local_addr().unwrap();
    drop(listener);
    (layer, address)
}

/// Who says nothing, or speaks another version, needs nothing of the library, which no agent runs here.
#[tokio::test]
async fn strangers_are_answered_or_turned_away_without_the_library() {
    let (layer, address) = layer().await;
    let accepting = tokio::spawn(layer.clone().accept());
    let mut other = TcpStream::connect(address).await.unwrap();
    other.write_all(b"dtn!\x03\x00").await.unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"dtn!\x04\x00\x05\x00\x02");
    let mut browser = TcpStream::connect(address).await.unwrap();
    browser.write_all(b"GET / ").await.unwrap();
    answer.clear();
    browser.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"");
    accepting.abort();
    layer.close().await;
}

/// The text is the system's, not the library's.
#[tokio::test]
async fn a_peer_that_is_not_there_is_told_of() {
    let (layer, _) = layer().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let connected = tokio::time::timeout(Duration::from_secs(60), layer.connect(address)).await;
    assert!(connected.unwrap().unwrap_err().contains("refused"));
}

/// Both ends of a connection.
async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// The next bytes that come are these.
async fn expect(end: &mut TcpStream, expected: &[u8]) {
    let mut came = vec![0; expected.len()];
    let read = end.read_exact(&mut came);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    read.unwrap_or_else(|_| panic!("{expected:?} does not come"))
        .unwrap();
    assert_eq!(came, expected);
}

/// What a connection holds that had to end waits for room in the store, and that for acknowledgements of a neighbour: these pass, and so
/// does all that nothing is held for.
#[tokio::test]
async fn what_brings_no_bundle_passes_while_there_is_no_room() {
    let places = Places::new(1000);
    let [hoard, honest] =
        [1, 2].map(|number| places.accept(IpAddr::from([192, 0, 2, number])).unwrap().0);
    places.begin_session(hoard.number);
    assert!(hoard.hold(1001), "it has to end, and the library keeps it");
    let (mut peer, peer_side) = connected().await;
    let (mut node, node_side) = connected().await;
    let carrying = tokio::spawn(async move {
        let held = |bytes| {
            honest.hold(bytes);
        };
        carry(
            peer_side,
            node_side,
            &[],
            Splice::new(LIMITS),
            held,
            &honest,
        )
        .await
    });
    peer.write_all(&hello()).await.unwrap();
    expect(&mut node, &hello()).await;
    node.write_all(&hello()).await.unwrap();
    expect(&mut peer, &hello()).await;
    let bundle = whole(START | END, 1, 100);
    node.write_all(&bundle).await.unwrap();
    expect(&mut peer, &bundle).await;
    // A KEEPALIVE, and an acknowledgement.
    let answers = [vec![4], ack(START | END, 1, 100)].concat();
    peer.write_all(&answers).await.unwrap();
    expect(&mut node, &answers).await;
    // A bundle of its own would be held, too.
    let bundle = whole(START | END, 7, 10);
    peer.write_all(&bundle).await.unwrap();
    let mut none = [0];
    let moment = Duration::from_millis(20);
    let early = tokio::time::timeout(moment, node.read(&mut none)).await;
    assert!(early.is_err(), "{early:?}");
    drop(hoard);
    expect(&mut node, &bundle).await;
    carrying.abort();
}
