use std::{ops::Range, time::Duration};

use hardy_bpa::{
    bundle::{Bundle, BundleMetadata},
    cla::Error,
};
use hardy_bpv7::{
    builder::Builder,
    bundle::FragmentInfo,
    creation_timestamp::CreationTimestamp,
    editor::{Chunk, Editor},
};
use starhaul_units::Bandwidth;

use super::*;
use crate::{
    config::Storage,
    fragments::Part,
    plan::{Contact, ContactPlan},
};

/// A layer whose neighbours answer only when they are told to.
#[derive(Default)]
struct Layer {
    sink: OnceLock<Box<dyn Sink>>,
    answers: AtomicBool,
    is_tcp: AtomicBool,
    /// Whether it answers at all, and how many bundles it has been given.
    is_stuck: AtomicBool,
    given: AtomicU64,
    /// Whether it says that neighbours refuse what they are given.
    refuses: AtomicBool,
}

#[async_trait]
impl Cla for Layer {
    async fn on_register(&self, sink: Box<dyn Sink>, _: &[NodeId]) {
        let _ = self.sink.set(sink);
    }

    async fn on_unregister(&self) {}

    fn address_type(&self) -> Option<ClaAddressType> {
        let is_tcp = self.is_tcp.load(Ordering::Relaxed);
        Some(match is_tcp {
            true => ClaAddressType::Tcp,
            false => ClaAddressType::Private,
        })
    }

    async fn forward(
        &self,
        _: Option<u32>,
        _: &ClaAddress,
        _: Bytes,
    ) -> Result<ForwardBundleResult> {
        self.given.fetch_add(1, Ordering::Relaxed);
        while self.is_stuck.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Error::Disconnected);
        }
        Ok(match self.answers.load(Ordering::Relaxed) {
            true => ForwardBundleResult::Sent,
            false => ForwardBundleResult::NoNeighbour,
        })
    }
}

impl Carrier for Layer {}

/// An agent that takes all and does nothing, and what it knows of.
#[derive(Default)]
struct Agent(Arc<Mutex<BTreeSet<ClaAddress>>>);

#[async_trait]
impl Sink for Agent {
    async fn unregister(&self) {}

    async fn dispatch(&self, _: Bytes, _: Option<&NodeId>, _: Option<&ClaAddress>) -> Result<()> {
        Ok(())
    }

    async fn add_peer(&self, address: ClaAddress, _: &[NodeId]) -> Result<bool> {
        Ok(self.0.lock().unwrap().insert(address))
    }

    async fn remove_peer(&self, address: &ClaAddress) -> Result<bool> {
        Ok(self.0.lock().unwrap().remove(address))
    }
}

fn at(name: &'static str) -> ClaAddress {
    ClaAddress::Private(Bytes::from_static(name.as_bytes()))
}

fn node(number: u32) -> NodeId {
    format!("ipn:{number}.0").parse().unwrap()
}

#[tokio::test]
async fn routes_lead_around_a_neighbour_until_it_answers() {
    let now = Schedule::now();
    let contact = |from, to, milliseconds| Contact {
        from: node(from),
        to: node(to),
        start: now,
        end: now.plus(Duration::from_secs(1000)),
        rate: Bandwidth::from_mbit(100),
        light_time: Duration::from_millis(milliseconds),
    };
    let plan = vec![
        contact(1, 2, 0),
        contact(2, 4, 0),
        contact(1, 3, 100),
        contact(3, 4, 100),
    ];
    let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
    let schedule = Arc::new(schedule);
    let stock = Stock::new(node(1), Storage::small());
    let layer = Arc::new(Layer::default());
    let guests = Guests::AllBut(Vec::new());
    let gate = Gate::new(
        node(1),
        layer.clone(),
        schedule.clone(),
        stock,
        guests,
        false,
    );
    gate.on_register(Box::new(Agent::default()), &[]).await;
    let address = at("2");
    let sink = layer.sink.get().unwrap();
    sink.add_peer(address.clone(), &[node(2)]).await.unwrap();
    let via = || schedule.look(Schedule::now())[&node(4)].clone();
    assert_eq!(via(), node(2));
    gate.forward(None, &address, Bytes::new()).await.unwrap();
    assert_eq!(via(), node(3));
    // It answers, or is heard, or connects again.
    layer.answers.store(true, Ordering::Relaxed);
    gate.forward(None, &address, Bytes::new()).await.unwrap();
    assert_eq!(via(), node(2));
    for connects in [false, true] {
        schedule.failed(&node(2), Schedule::now());
        assert_eq!(via(), node(3));
        if connects {
            sink.add_peer(address.clone(), &[node(2)]).await.unwrap();
        } else {
            let from = (Some(&node(2)), Some(&address));
            sink.dispatch(Bytes::new(), from.0, from.1).await.unwrap();
        }
        assert_eq!(via(), node(2), "connects: {connects}");
    }
    // Without an answer over TCP the bundle may have been refused.
    layer.answers.store(false, Ordering::Relaxed);
    for is_tcp in [false, true] {
        layer.is_tcp.store(is_tcp, Ordering::Relaxed);
        let sending = async { drop(gate.forward(None, &address, Bytes::new()).await) };
        assert_eq!(egress::is_refused(sending).await, is_tcp);
    }
}

/// It connects from another address when its link comes back, before the node has noticed the end of its former connection.
#[tokio::test]
async fn the_latest_connection_of_a_neighbour_is_used() {
    let always = Contact {
        from: node(1),
        to: node(2),
        start: Moment::default(),
        end: Moment::MAX,
        rate: Bandwidth::from_mbit(100),
        light_time: Duration::ZERO,
    };
    let plan = ContactPlan::new(vec![always]);
    let schedule = Arc::new(Schedule::new(node(1), plan, Vec::new()));
    schedule.look(Schedule::now());
    let stock = Stock::new(node(1), Storage::small());
    let (layer, agent) = (Arc::new(Layer::default()), Agent::default());
    let known = agent.0.clone();
    let guests = Guests::Only(vec![node(2)]);
    let gate = Gate::new(
        node(1),
        layer.clone(),
        schedule.clone(),
        stock,
        guests,
        true,
    );
    gate.on_register(Box::new(agent), &[]).await;
    let shown = || known.lock().unwrap().iter().cloned().collect::<Vec<_>>();
    let sink = layer.sink.get().unwrap();
    for name in ["old", "new"] {
        sink.add_peer(at(name), &[node(2)]).await.unwrap();
        assert_eq!(shown(), [at(name)]);
    }
    assert_eq!(gate.passed().neighbours, [(node(2), true)]);
    // What was on its way over the former connection says nothing of the node.
    let old = at("old");
    gate.forward(None, &old, Bytes::new()).await.unwrap();
    assert_eq!(schedule.next_attempt(Schedule::now()), None);
    sink.remove_peer(&at("new")).await.unwrap();
    assert_eq!(shown(), [at("old")]);
    gate.forward(None, &old, Bytes::new()).await.unwrap();
    assert!(schedule.next_attempt(Schedule::now()).is_some());
}

/// How the connection that bundles wait for ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Breaks,
    /// Another connection comes, at the same address or not.
    IsReplaced(&'static str),
}

/// Hundreds wait for a session of TCPCLv4 that breaks: each that waits in the layer makes a connection of its own, for which those behind
/// it do not wait.
#[tokio::test]
async fn few_bundles_wait_for_a_connection_and_those_behind_them_see_it_break() {
    for ends in [Ends::Breaks, Ends::IsReplaced("2"), Ends::IsReplaced("3")] {
        let always = Contact {
            from: node(1),
            to: node(2),
            start: Moment::default(),
            end: Moment::MAX,
            rate: Bandwidth::from_mbit(100),
            light_time: Duration::ZERO,
        };
        let schedule = Schedule::new(node(1), ContactPlan::new(vec![always]), Vec::new());
        schedule.look(Schedule::now());
        let stock = Stock::new(node(1), Storage::small());
        let layer = Arc::new(Layer::default());
        layer.is_tcp.store(true, Ordering::Relaxed);
        layer.is_stuck.store(true, Ordering::Relaxed);
        let guests = Guests::Only(vec![node(2)]);
        let gate = Gate::new(
            node(1),
            layer.clone(),
            Arc::new(schedule),
            stock,
            guests,
            true,
        );
        gate.on_register(Box::new(Agent::default()), &[]).await;
        let sink = layer.sink.get().unwrap();
        sink.add_peer(at("2"), &[node(2)]).await.unwrap();
        let sending = (0..300).map(|_| {
            let gate = gate.clone();
            tokio::spawn(async move { gate.forward(None, &at("2"), Bytes::new()).await })
        });
        let sending: Vec<_> = sending.collect();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let given = || layer.given.load(Ordering::Relaxed);
        assert_eq!(given(), MOST_AT_ONCE as u64);
        match ends {
            Ends::Breaks => assert!(sink.remove_peer(&at("2")).await.unwrap()),
            Ends::IsReplaced(by) => {
                let is_new = sink.add_peer(at(by), &[node(2)]).await.unwrap();
                assert_eq!(is_new, by != "2");
            }
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        // Those that the layer has go on for as long as it likes.
        let waiting = sending.iter().filter(|sent| !sent.is_finished()).count();
        assert_eq!(
            (waiting, given()),
            (MOST_AT_ONCE, MOST_AT_ONCE as u64),
            "{ends:?}"
        );
        layer.is_stuck.store(false, Ordering::Relaxed);
        for sent in sending {
            let sent = sent.await.unwrap();
            assert!(matches!(sent, Ok(ForwardBundleResult::NoNeighbour)));
        }
        assert_eq!(given(), MOST_AT_ONCE as u64);
    }
}

/// Over LTP it proves by its key who it is.
#[tokio::test]
async fn a_stranger_does_not_get_a_name_that_is_kept_for_another_layer() {
    let schedule = Schedule::new(node(1), ContactPlan::default(), Vec::new());
    let stock = Stock::new(node(1), Storage::small());
    let layer = Arc::new(Layer::default());
    let guests = Guests::AllBut(vec![node(2)]);
    let gate = Gate::new(
        node(1),
        layer.clone(),
        Arc::new(schedule),
        stock,
        guests,
        true,
    );
    gate.on_register(Box::new(Agent::default()), &[]).await;
    let sink = layer.sink.get().unwrap();
    for (number, enters) in [(2, false), (3, true)] {
        let (node, address) = (node(number), at("x"));
        let from = (Some(&node), Some(&address));
        let came = sink
            .add_peer(address.clone(), std::slice::from_ref(&node))
            .await;
        assert_eq!((came.unwrap(), gate.has(&node)), (enters, enters));
        let given = sink.dispatch(Bytes::new(), from.0, from.1).await;
        assert_eq!(given.is_ok(), enters);
        assert!(gate.is_connected(&address));
        sink.remove_peer(&address).await.unwrap();
        assert!(!gate.is_connected(&address));
    }
}

/// Its link of LTP has broken, and the agent would give it half of what is sent for as long as it knows of that way.
#[tokio::test]
async fn a_neighbour_over_ltp_and_tcp_gets_its_bundles_over_the_one_that_goes_on() {
    let always = Contact {
        from: node(1),
        to: node(2),
        start: Moment::default(),
        end: Moment::MAX,
        rate: Bandwidth::from_mbit(100),
        light_time: Duration::ZERO,
    };
    let schedule = Schedule::new(node(1), ContactPlan::default(), vec![always]);
    let schedule = Arc::new(schedule);
    schedule.look(Schedule::now());
    let stock = Stock::new(node(1), Storage::small());
    let new = async |is_tcp: bool| {
        let (layer, agent) = (Arc::new(Layer::default()), Agent::default());
        layer.is_tcp.store(is_tcp, Ordering::Relaxed);
        let known = agent.0.clone();
        let gate = Gate::new(
            node(1),
            layer.clone(),
            schedule.clone(),
            stock.clone(),
            Guests::Only(vec![node(2)]),
            is_tcp,
        );
        gate.on_register(Box::new(agent), &[]).await;
        let sink = layer.sink.get().unwrap();
        sink.add_peer(at("2"), &[node(2)]).await.unwrap();
        (layer, gate, known)
    };
    let (ltp, tcp) = (new(false).await, new(true).await);
    let shown = async || {
        let now = Schedule::now();
        ltp.1.update(now).await;
        tcp.1.update(now).await;
        [&ltp, &tcp].map(|(_, _, known)| known.lock().unwrap().len())
    };
    assert_eq!(shown().await, [1, 1]);
    ltp.1.forward(None, &at("2"), Bytes::new()).await.unwrap();
    assert_eq!(shown().await, [0, 1]);
    // No way leads around the node, which is there.
    assert!(schedule.is_shown(&node(2), Schedule::now()));
    assert!(!schedule.worked(&node(2), Schedule::now()));
    // What has been asked for until now.
    let asked = stock.changes.asked(Duration::ZERO);
    let _ = tokio::time::timeout(Duration::from_millis(50), asked).await;
    // The other one ends, too: there is no better way than the first.
    let sink = tcp.0.sink.get().unwrap();
    sink.remove_peer(&at("2")).await.unwrap();
    assert_eq!(shown().await, [1, 0]);
    let asked = stock.changes.asked(Duration::ZERO);
    let asked = tokio::time::timeout(Duration::from_secs(5), asked).await;
    assert!(
        asked.is_ok(),
        "what waits is not looked at when the way that was used ends"
    );
    sink.add_peer(at("2"), &[node(2)]).await.unwrap();
    assert_eq!(shown().await, [0, 1]);
    // It answers again over both.
    ltp.0.answers.store(true, Ordering::Relaxed);
    ltp.1.forward(None, &at("2"), Bytes::new()).await.unwrap();
    assert_eq!(shown().await, [1, 1]);
}

/// Where many small parts are here already, a large one is cut into as many.
#[tokio::test]
async fn each_piece_of_a_part_that_overlaps_others_needs_room() {
    let stamp = CreationTimestamp::now();
    let part = |at: Range<u64>| -> Bytes {
        let builder = Builder::new("ipn:2.5".parse().unwrap(), "ipn:1.5".parse().unwrap());
        let payload: Vec<u8> = at.clone().map(|_| 7).collect();
        let builder = builder.with_payload(payload.into());
        let (bundle, data) = builder.build(stamp.clone()).unwrap();
        let info = FragmentInfo {
            offset: at.start,
            total_adu_length: 100,
        };
        let editor = Editor::new(&bundle, &data).with_fragment_info(Some(info));
        let chunks = editor.map_err(|(_, error)| error).unwrap().rebuild();
        Chunk::flatten(chunks.unwrap(), &data).into_vec().into()
    };
    let schedule = Schedule::new(node(1), ContactPlan::default(), Vec::new());
    let schedule = Arc::new(schedule);
    for (bundles, is_taken) in [(3, false), (4, true)] {
        let limits = Storage {
            bundles,
            ..Storage::small()
        };
        let stock = Stock::new(node(1), limits);
        for at in [10..20, 30..40] {
            let here = Part::of(&part(at), &stock).unwrap();
            let here = Bundle {
                bundle: here.bundle,
                metadata: BundleMetadata::default(),
            };
            stock.insert(&here, false);
        }
        let layer = Arc::new(Layer::default());
        let gate = Gate::new(
            node(1),
            layer.clone(),
            schedule.clone(),
            stock.clone(),
            Guests::Only(vec![node(2)]),
            false,
        );
        gate.on_register(Box::new(Agent::default()), &[]).await;
        let sink = layer.sink.get().unwrap();
        let from = (node(2), at("2"));
        let given = sink.dispatch(part(0..50), Some(&from.0), Some(&from.1));
        assert_eq!(given.await.is_ok(), is_taken, "{bundles}");
        assert_eq!(stock.ended().refused, u64::from(!is_taken));
    }
}

/// A gate over LTP that knows nodes 2 and 3, with a store that one bundle fills.
async fn narrow() -> (Arc<Layer>, Arc<Gate>, Arc<Stock>) {
    let always = |number| Contact {
        from: node(1),
        to: node(number),
        start: Moment::default(),
        end: Moment::MAX,
        rate: Bandwidth::from_mbit(100),
        light_time: Duration::ZERO,
    };
    let plan = ContactPlan::new(vec![always(2), always(3)]);
    let schedule = Schedule::new(node(1), plan, Vec::new());
    schedule.look(Schedule::now());
    let limits = Storage {
        bundles: 1,
        ..Storage::small()
    };
    let stock = Stock::new(node(1), limits);
    let layer = Arc::new(Layer::default());
    let gate = Gate::new(
        node(1),
        layer.clone(),
        Arc::new(schedule),
        stock.clone(),
        Guests::Only(vec![node(2), node(3)]),
        false,
    );
    gate.on_register(Box::new(Agent::default()), &[]).await;
    let sink = layer.sink.get().unwrap();
    for (number, name) in [(2, "2"), (3, "3")] {
        sink.add_peer(at(name), &[node(number)]).await.unwrap();
    }
    (layer, gate, stock)
}

/// Has a node give a bundle: whether it is taken, and after how long.
async fn give(layer: &Layer, number: u32) -> (bool, Duration) {
    let (from, at) = (node(number), at("x"));
    let begun = tokio::time::Instant::now();
    let sink = layer.sink.get().unwrap();
    let given = sink.dispatch(Bytes::new(), Some(&from), Some(&at)).await;
    (given.is_ok(), begun.elapsed())
}

/// Where bundles are on their way to the node that gives one, acknowledgements make room. Where none comes, the node may be as full.
#[tokio::test(start_paused = true)]
async fn a_bundle_waits_for_room_while_others_are_for_its_node_and_is_taken_then() {
    let (layer, gate, stock) = narrow().await;
    let at_once = (false, Duration::ZERO);
    let full = stock.admit(1).unwrap();
    assert_eq!(give(&layer, 2).await, at_once, "nothing is for it");

    layer.is_stuck.store(true, Ordering::Relaxed);
    let leaving = tokio::spawn({
        let gate = gate.clone();
        async move { gate.forward(None, &at("2"), Bytes::new()).await }
    });
    while layer.given.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(give(&layer, 3).await, at_once, "nothing is for that one");
    let (is_taken, after) = give(&layer, 2).await;
    assert!(is_taken && after >= head_on::PATIENCE, "{after:?}");
    let acknowledged = async {
        tokio::time::sleep(head_on::PATIENCE / 4).await;
        drop(full);
    };
    let ((is_taken, after), ()) = tokio::join!(give(&layer, 2), acknowledged);
    assert!(is_taken && after < head_on::PATIENCE, "{after:?}");

    // What it refused waits here for another attempt.
    let _full = stock.admit(1).unwrap();
    layer.refuses.store(true, Ordering::Relaxed);
    layer.is_stuck.store(false, Ordering::Relaxed);
    assert!(leaving.await.unwrap().is_err());
    let (is_taken, after) = give(&layer, 2).await;
    assert!(is_taken && after >= head_on::PATIENCE, "{after:?}");
    layer.refuses.store(false, Ordering::Relaxed);
    layer.answers.store(true, Ordering::Relaxed);
    gate.forward(None, &at("2"), Bytes::new()).await.unwrap();
    assert_eq!(give(&layer, 2).await, at_once, "nothing is for it any more");
}

/// Blocks of others must not wait behind hundreds of a node that is full.
#[tokio::test(start_paused = true)]
async fn few_bundles_wait_for_room_at_a_time_and_few_are_taken_beyond_it() {
    let (layer, gate, stock) = narrow().await;
    let _full = stock.admit(1).unwrap();
    layer.refuses.store(true, Ordering::Relaxed);
    let forwarded = gate.forward(None, &at("2"), Bytes::new()).await;
    assert!(forwarded.is_err());
    let mut giving = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let layer = layer.clone();
        giving.spawn(async move { give(&layer, 2).await });
    }
    let all = giving.join_all().await;
    let taken = all.iter().filter(|(is_taken, _)| *is_taken).count();
    let at_once = all.iter().filter(|(_, after)| after.is_zero()).count();
    assert_eq!((taken, at_once), (8, 12), "{all:?}");
    assert_eq!(stock.ended().refused, 12);
}
