//! rtnetlink messages. Only the kernel sends them; no content may stop the parser.

use starhaul_net::{NetworkChange, parse_news};

/// A datagram of rtnetlink's groups: it has no more changes than messages fit, and a truncated one counts as missed.
pub fn network_news(data: &[u8]) {
    let news = |data| {
        let mut all = Vec::new();
        parse_news(data, |change| all.push(change));
        all
    };
    let whole = news(data);
    assert!(whole.len() <= data.len() / 16 + 1, "more than fit");
    let cut = news(data.get(..data.len() / 2).unwrap_or_default());
    let common = whole.iter().zip(&cut).take_while(|(a, b)| a == b).count();
    let rest = cut.get(common..).unwrap_or_default();
    assert!(
        rest.is_empty() || rest == [NetworkChange::Missed],
        "half of it told something else: {rest:?}"
    );
}
