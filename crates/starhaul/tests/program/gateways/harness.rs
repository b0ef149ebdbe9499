//! The harness itself: its links carry packets, cut ones do not, and restored ones do again.

use std::net::UdpSocket;

use super::{
    gateway::Pair,
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

#[test]
fn a_transfer_crosses_two_links_one_of_which_is_cut_and_mended() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let (download, size) = (Transfer::download(&network), 1 << 20);
    download.wait_for_progress(size);
    network.cut(0);
    pair.wait_for_state(&["link0"], "suspect");
    download.wait_for_progress(size);
    network.mend(0);
    pair.wait_until_up(&["link0"]);
    download.wait_for_progress(size);
    download.finish();
    let upload = Transfer::upload(&network);
    upload.wait_for_progress(size);
    upload.finish();
}

#[test]
fn a_link_narrow_in_its_middle_swallows_large_packets() {
    let Some(network) = Network::create(1) else {
        return;
    };
    network.set_mtu(Side::Ground, 0, 1000);
    let (to, from) = (
        Network::address(Side::Ground, 0) + ":4000",
        Network::address(Side::Field, 0) + ":0",
    );
    let receiver = network.ground.inside(|| UdpSocket::bind(&to)).unwrap();
    let sender = network.field.inside(|| UdpSocket::bind(from)).unwrap();
    receiver.set_nonblocking(true).unwrap();
    // Again and again, for a device that has just come up may still lose all.
    let first = wait_for("a packet", || {
        for bytes in [1200, 900] {
            sender.send_to(&vec![0; bytes], &to).unwrap();
        }
        receiver.recv(&mut [0; 2000]).ok()
    });
    assert_eq!(first, 900, "what is too large does not arrive");
}
