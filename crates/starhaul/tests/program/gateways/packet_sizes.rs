//! Links narrower than Ethernet, from the beginning or while data are sent.

use super::{
    gateway::{Gateway, Pair},
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

/// Waits until a gateway has found that a path carries packets with exactly this many bytes of UDP payload.
fn wait_for_size(gateway: &Gateway, path: &str, bytes: u64) {
    wait_for(&format!("packets of {bytes} bytes on {path}"), || {
        (gateway.path(path)["packet_bytes"] == bytes).then_some(())
    });
}

#[test]
fn an_upload_crosses_narrow_links_and_one_that_becomes_narrower() {
    let Some(network) = Network::create(2) else {
        return;
    };
    network.set_mtu(Side::Ground, 0, 1400);
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    for gateway in [&pair.field, &pair.ground] {
        wait_for_size(gateway, "link0", 1372);
        wait_for_size(gateway, "link1", 1472);
    }
    let (upload, size) = (Transfer::upload(&network), 2 << 20);
    upload.wait_for_progress(size);
    network.set_mtu(Side::Ground, 1, 1280);
    upload.wait_for_progress(size);
    wait_for_size(&pair.field, "link1", 1252);
    // At the interface itself, so that the kernel refuses larger packets.
    network.set_mtu(Side::Field, 0, 1280);
    upload.wait_for_progress(size);
    wait_for_size(&pair.field, "link0", 1252);
    upload.wait_for_progress(size);
    upload.finish();
    // A computer that stops for some milliseconds makes a path suspect for a short time.
    pair.wait_until_up(&["link0", "link1"]);
}
