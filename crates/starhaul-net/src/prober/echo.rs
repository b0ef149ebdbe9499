//! UDP echo for hosts without permission for ICMP: a responder of ours answers each probe with as many bytes.
//!
//! It cannot be used for reflection: it answers probes only with a cookie that was sent to the client's address before
//! (as QUIC's Retry, RFC 9000 §8.1.2), sends few cookies per second, never sends more bytes than it got, and has limits
//! for each address and in all. Forged addresses cost it little: state for unknown addresses has a fixed size, and only
//! addresses that have shown a cookie have an entry of their own. Datagrams begin with a byte that no QUIC packet of
//! ours begins with (RFC 9443), so the port of a gateway serves both.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant, SystemTime},
};

use ring::hmac;

/// Size of each datagram in both directions.
pub const ECHO_BYTES: usize = 40;

/// The first byte has neither bit of QUIC's headers; the last is the version.
const MAGIC: [u8; 7] = *b"\x10shecho";
/// Least lifetime of a cookie; the greatest is twice as long.
const COOKIE_LIFE: Duration = Duration::from_secs(300);
/// Greatest number of addresses with a valid cookie that are known; rates are kept for at most twice as many.
const MAX_KNOWN: usize = 4096;
/// Number of rate buckets that unknown addresses share, by a hash of the address.
const PLACES: usize = 1024;
/// Cookies and answers per address and second. Hosts behind one address share them.
const COOKIES_PER_ADDRESS: f64 = 10.0;
const ANSWERS_PER_ADDRESS: f64 = 1000.0;
/// Cookies and answers per second for all addresses. Those that have shown a cookie have as many cookies again for themselves.
const COOKIES_IN_ALL: f64 = 200.0;
const ANSWERS_IN_ALL: f64 = 20_000.0;
/// Cookies of unknown addresses verified per second; that of a known address is compared with the one it showed before.
const TESTS_IN_ALL: f64 = 2_000.0;

/// Proof that its sender receives at an address.
pub type Cookie = [u8; 16];

/// What the responder tells with an answer. Older ones tell zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Its calendar time, in microseconds since 1970; 0 if it is not told.
    pub clock_us: u64,
    /// The UDP port that the probe came from, as a NAT on the way left it; 0 if it is not told.
    pub port: u16,
}

/// A datagram of the echo protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoMessage {
    /// Requests a cookie.
    Hello {
        /// The prober's token, by which it recognises answers.
        token: [u8; 8],
    },
    /// The cookie for the address of the hello.
    Welcome {
        /// The token of the hello.
        token: [u8; 8],
        /// The cookie to send with probes.
        cookie: Cookie,
    },
    /// A probe, which asks for an answer.
    Question {
        /// The prober's token.
        token: [u8; 8],
        /// The cookie of the welcome.
        cookie: Cookie,
        /// Number of the probe.
        number: u32,
    },
    /// The answer to a probe.
    Answer {
        /// The token of the probe.
        token: [u8; 8],
        /// The number of the probe.
        number: u32,
        /// What the responder tells with it.
        sight: Sight,
    },
}

impl EchoMessage {
    /// Whether a datagram belongs to this protocol, well-formed or not.
    pub fn is_echo(datagram: &[u8]) -> bool {
        datagram.starts_with(&MAGIC)
    }

    /// Decodes a datagram; `None` when it is no echo message or malformed.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let rest = datagram
            .strip_prefix(&MAGIC)
            .filter(|_| datagram.len() == ECHO_BYTES)?;
        let (kind, rest) = rest.split_first()?;
        let (cookie, rest) = rest.split_first_chunk::<16>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let number = u32::from_be_bytes(*rest.first_chunk()?);
        let (cookie, token) = (*cookie, *token);
        Some(match kind {
            0 => Self::Hello { token },
            1 => Self::Welcome { token, cookie },
            2 => Self::Question {
                token,
                cookie,
                number,
            },
            3 => Self::Answer {
                token,
                number,
                sight: Sight::decode(cookie),
            },
            _ => return None,
        })
    }

    /// The prober's token.
    pub fn token(&self) -> [u8; 8] {
        match *self {
            Self::Hello { token }
            | Self::Welcome { token, .. }
            | Self::Question { token, .. }
            | Self::Answer { token, .. } => token,
        }
    }

    /// Encodes the message.
    pub fn encode(&self) -> [u8; ECHO_BYTES] {
        let (kind, token, cookie, number) = match *self {
            Self::Hello { token } => (0, token, Cookie::default(), 0),
            Self::Welcome { token, cookie } => (1, token, cookie, 0),
            Self::Question {
                token,
                cookie,
                number,
            } => (2, token, cookie, number),
            Self::Answer {
                token,
                number,
                sight,
            } => (3, token, sight.encode(), number),
        };
        let number = number.to_be_bytes();
        let parts: [&[u8]; 5] = [&MAGIC, &[kind], &cookie, &token, &number];
        let mut datagram = [0; ECHO_BYTES];
        let bytes = parts.into_iter().flatten();
        for (place, byte) in datagram.iter_mut().zip(bytes) {
            *place = *byte;
        }
        datagram
    }
}

impl Sight {
    /// At the place of the cookie, of which an answer has none: the clock, the port, and zeros.
    fn encode(self) -> Cookie {
        let (clock, port) = (self.clock_us.to_be_bytes(), self.port.to_be_bytes());
        let mut place = Cookie::default();
        for (byte, told) in place.iter_mut().zip(clock.into_iter().chain(port)) {
            *byte = told;
        }
        place
    }

    fn decode(place: Cookie) -> Self {
        let [clock @ .., high, low, _, _, _, _, _, _] = place;
        Self {
            clock_us: u64::from_be_bytes(clock),
            port: u16::from_be_bytes([high, low]),
        }
    }
}

/// The responder to probes of hosts without ICMP. Sans-IO.
#[derive(Debug)]
pub struct EchoResponder {
    key: hmac::Key,
    start: Instant,
    cookies: Bucket,
    /// Cookies for addresses that have shown one.
    renewals: Bucket,
    tests: Bucket,
    answers: Bucket,
    /// Rate buckets of unknown addresses, by a keyed hash of the address.
    places: Box<[Bucket]>,
    hash: RandomState,
    known: Known,
    /// Cookies computed, which is what costs.
    #[cfg(test)]
    hashes: std::cell::Cell<u64>,
}

/// An address with a valid cookie.
#[derive(Clone, Copy, Debug)]
struct Asker {
    cookie: Cookie,
    /// The epoch of the cookie.
    epoch: u64,
    answers: Bucket,
    renewals: Bucket,
}

/// Addresses with a valid cookie, in two generations, so that dropping the oldest costs nothing.
#[derive(Debug, Default)]
struct Known {
    young: HashMap<IpAddr, Asker>,
    old: HashMap<IpAddr, Asker>,
}

impl EchoResponder {
    /// Creates a responder; cookies cannot be forged without `secret`.
    pub fn new(secret: [u8; 32], now: Instant) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            start: now,
            cookies: Bucket::full(COOKIES_IN_ALL, now),
            renewals: Bucket::full(COOKIES_IN_ALL, now),
            tests: Bucket::full(TESTS_IN_ALL, now),
            answers: Bucket::full(ANSWERS_IN_ALL, now),
            places: vec![Bucket::full(COOKIES_PER_ADDRESS, now); PLACES].into_boxed_slice(),
            hash: RandomState::new(),
            known: Known::default(),
            #[cfg(test)]
            hashes: std::cell::Cell::default(),
        }
    }

    /// The answer to a datagram from this address; `None` for most datagrams of unknown senders. `clock` is the calendar time that
    /// probers are told.
    pub fn answer(
        &mut self,
        now: Instant,
        clock: SystemTime,
        sender: SocketAddr,
        datagram: &[u8],
    ) -> Option<[u8; ECHO_BYTES]> {
        let from = sender.ip();
        let answer = match EchoMessage::decode(datagram)? {
            EchoMessage::Hello { token } => {
                self.allow_cookie(now, from)?;
                let cookie = self.cookie(self.epoch(now), from);
                EchoMessage::Welcome { token, cookie }
            }
            EchoMessage::Question {
                token,
                cookie,
                number,
            } => {
                self.allow_answer(now, from, cookie)?;
                let since_1970 = clock.duration_since(SystemTime::UNIX_EPOCH);
                let micros = since_1970.map_or(0, |since| since.as_micros());
                let sight = Sight {
                    clock_us: u64::try_from(micros).unwrap_or_default(),
                    port: sender.port(),
                };
                EchoMessage::Answer {
                    token,
                    number,
                    sight,
                }
            }
            EchoMessage::Welcome { .. } | EchoMessage::Answer { .. } => return None,
        };
        Some(answer.encode())
    }

    fn epoch(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs() / COOKIE_LIFE.as_secs()
    }

    fn cookie(&self, epoch: u64, address: IpAddr) -> Cookie {
        #[cfg(test)]
        self.hashes.set(self.hashes.get() + 1);
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&epoch.to_be_bytes());
        match address {
            IpAddr::V4(address) => context.update(&address.octets()),
            IpAddr::V6(address) => context.update(&address.octets()),
        }
        let tag = context.sign();
        tag.as_ref().first_chunk().copied().unwrap_or_default()
    }

    /// Allows a cookie: the common limit is checked first, so that a flood costs few steps.
    fn allow_cookie(&mut self, now: Instant, address: IpAddr) -> Option<()> {
        if let Some(asker) = self.known.get_mut(address) {
            let allowed = asker.renewals.take(now) && self.renewals.take(now);
            return allowed.then_some(());
        }
        if self.cookies.level(now) < 1.0 {
            return None;
        }
        let hash = usize::try_from(self.hash.hash_one(address) % PLACES as u64).ok()?;
        let place = self.places.get_mut(hash)?;
        (place.take(now) && self.cookies.take(now)).then_some(())
    }

    /// Allows an answer to an address with a valid cookie; the most frequent checks are the cheapest.
    fn allow_answer(&mut self, now: Instant, address: IpAddr, cookie: Cookie) -> Option<()> {
        let epoch = self.epoch(now);
        let is_recent = |of: u64| of == epoch || of + 1 == epoch;
        let known = self.known.get(address);
        let known = known.filter(|known| is_recent(known.epoch) && same(known.cookie, cookie));
        let mut asker = match known {
            Some(known) => *known,
            None => {
                if !self.tests.take(now) {
                    return None;
                }
                let mut recent = [Some(epoch), epoch.checked_sub(1)].into_iter().flatten();
                let epoch = recent.find(|epoch| same(self.cookie(*epoch, address), cookie))?;
                // An address that renews its cookie keeps its rates.
                let fresh = Asker {
                    cookie,
                    epoch,
                    answers: Bucket::full(ANSWERS_PER_ADDRESS, now),
                    renewals: Bucket::full(COOKIES_PER_ADDRESS, now),
                };
                let known = self.known.get(address).copied().unwrap_or(fresh);
                Asker {
                    cookie,
                    epoch,
                    ..known
                }
            }
        };
        let allowed = asker.answers.take(now) && self.answers.take(now);
        self.known.put(address, asker);
        allowed.then_some(())
    }
}

/// Compares in constant time.
fn same(one: Cookie, other: Cookie) -> bool {
    let pairs = one.iter().zip(other);
    pairs.fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

impl Known {
    fn get(&self, address: IpAddr) -> Option<&Asker> {
        self.young.get(&address).or_else(|| self.old.get(&address))
    }

    fn get_mut(&mut self, address: IpAddr) -> Option<&mut Asker> {
        let young = self.young.get_mut(&address);
        young.or_else(|| self.old.get_mut(&address))
    }

    fn put(&mut self, address: IpAddr, asker: Asker) {
        if self.young.len() >= MAX_KNOWN && !self.young.contains_key(&address) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(address, asker);
    }
}

/// A token bucket of one second's rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: f64, now: Instant) -> Self {
        Self {
            rate,
            level: rate,
            at: now,
        }
    }

    fn level(&self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.level + since * self.rate).min(self.rate)
    }

    fn take(&mut self, now: Instant) -> bool {
        let level = self.level(now);
        (self.level, self.at) = (level, now);
        if level < 1.0 {
            return false;
        }
        self.level -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; 8] = *b"a token!";

    const CLOCK: SystemTime = SystemTime::UNIX_EPOCH;

    /// The answer to a datagram from a port of this address.
    fn answer(
        responder: &mut EchoResponder,
        now: Instant,
        from: IpAddr,
        datagram: &[u8],
    ) -> Option<[u8; ECHO_BYTES]> {
        responder.answer(now, CLOCK, SocketAddr::new(from, 4711), datagram)
    }

    fn welcomed(responder: &mut EchoResponder, now: Instant, from: IpAddr) -> Option<Cookie> {
        let hello = EchoMessage::Hello { token: TOKEN }.encode();
        let answer = answer(responder, now, from, &hello)?;
        match EchoMessage::decode(&answer) {
            Some(EchoMessage::Welcome { token, cookie }) if token == TOKEN => Some(cookie),
            other => panic!("{other:?}"),
        }
    }

    fn question(cookie: Cookie, number: u32) -> [u8; ECHO_BYTES] {
        let token = TOKEN;
        EchoMessage::Question {
            token,
            cookie,
            number,
        }
        .encode()
    }

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    #[test]
    fn who_shows_the_cookie_of_its_address_is_answered_and_nobody_else() {
        let now = Instant::now();
        let mut responder = EchoResponder::new([7; 32], now);
        let cookie = welcomed(&mut responder, now, address(1)).unwrap();
        let answered = answer(&mut responder, now, address(1), &question(cookie, 9)).unwrap();
        let expected = EchoMessage::Answer {
            token: TOKEN,
            number: 9,
            sight: Sight {
                clock_us: 0,
                port: 4711,
            },
        };
        assert_eq!(EchoMessage::decode(&answered), Some(expected));
        for (from, datagram) in [
            (address(2), question(cookie, 9)),
            (address(1), question(Cookie::default(), 9)),
            (address(1), answered),
        ] {
            assert_eq!(answer(&mut responder, now, from, &datagram), None);
        }
        let mut stranger = EchoResponder::new([8; 32], now);
        let other = answer(&mut stranger, now, address(1), &question(cookie, 9));
        assert_eq!(other, None, "the cookie of another responder");
    }

    #[test]
    fn a_prober_is_told_the_clock_and_the_port_that_it_has_behind_a_nat() {
        let now = Instant::now();
        let mut responder = EchoResponder::new([7; 32], now);
        let cookie = welcomed(&mut responder, now, address(1)).unwrap();
        let (clock, sender) = (
            CLOCK + Duration::from_secs(1_700_000_000),
            SocketAddr::new(address(1), 50_000),
        );
        let told = responder.answer(now, clock, sender, &question(cookie, 1));
        let sight = match EchoMessage::decode(&told.unwrap()) {
            Some(EchoMessage::Answer { sight, .. }) => sight,
            other => panic!("{other:?}"),
        };
        assert_eq!(sight.clock_us, 1_700_000_000_000_000);
        assert_eq!(sight.port, 50_000);
        // What responders without a clock wrote there.
        assert_eq!(Sight::decode([0; 16]), Sight::default());
    }

    #[test]
    fn a_cookie_outlives_the_prober_that_renews_it_and_ends() {
        let now = Instant::now();
        let mut responder = EchoResponder::new([7; 32], now);
        let cookie = welcomed(&mut responder, now, address(1)).unwrap();
        let mut ask = |after| {
            answer(
                &mut responder,
                now + after,
                address(1),
                &question(cookie, 1),
            )
        };
        assert!(ask(COOKIE_LIFE * 2 - Duration::from_secs(1)).is_some());
        assert!(ask(COOKIE_LIFE * 2).is_none());
    }

    #[test]
    fn no_address_and_no_crowd_gets_more_than_its_bound() {
        let now = Instant::now();
        let mut responder = EchoResponder::new([7; 32], now);
        let cookie = welcomed(&mut responder, now, address(1)).unwrap();
        let answered = (0..3000)
            .filter(|n| answer(&mut responder, now, address(1), &question(cookie, *n)).is_some())
            .count();
        assert_eq!(answered, 1000);
        // A second later a probe every 10 ms passes.
        let later = now + Duration::from_secs(1);
        let answer = answer(&mut responder, later, address(1), &question(cookie, 1));
        assert!(answer.is_some());
        let welcomed = (2..20_000)
            .filter(|n| welcomed(&mut responder, later, address(*n)).is_some())
            .count();
        assert_eq!(welcomed, 200, "strangers made it reflect more");
    }

    #[test]
    fn no_address_is_told_more_cookies_than_its_share() {
        let now = Instant::now();
        let mut responder = EchoResponder::new([7; 32], now);
        let told = (0..100).filter(|_| welcomed(&mut responder, now, address(1)).is_some());
        assert_eq!(told.count(), 10);
    }

    #[test]
    fn hellos_from_forged_addresses_do_not_silence_who_has_a_cookie() {
        let start = Instant::now();
        let mut responder = EchoResponder::new([7; 32], start);
        let cookie = welcomed(&mut responder, start, address(1)).unwrap();
        // 60 000 datagrams per second from 4096 addresses.
        for n in 0..60_000 {
            let now = start + Duration::from_secs(2) + Duration::from_micros(17) * n;
            let _ = welcomed(&mut responder, now, address(2 + n % 4096));
            if n % 1000 == 999 {
                let answer = answer(&mut responder, now, address(1), &question(cookie, n));
                assert!(answer.is_some(), "silenced by {n} hellos");
            }
        }
    }

    /// A prober may ask for its next cookie late, when the last has just ended.
    #[test]
    fn hellos_from_forged_addresses_keep_no_cookie_from_who_had_one() {
        let start = Instant::now();
        let mut responder = EchoResponder::new([7; 32], start);
        let cookie = welcomed(&mut responder, start, address(1)).unwrap();
        assert!(answer(&mut responder, start, address(1), &question(cookie, 1)).is_some());
        let later = start + COOKIE_LIFE * 2;
        let mut renewed = 0;
        for n in 0..60_000 {
            let now = later + Duration::from_micros(17) * n;
            let _ = welcomed(&mut responder, now, address(2 + n % 4096));
            if n % 10_000 == 9999 {
                renewed += usize::from(welcomed(&mut responder, now, address(1)).is_some());
            }
        }
        assert_eq!(renewed, 6);
    }

    #[test]
    fn forged_hellos_cost_no_more_hashes_than_answers_are_allowed() {
        let start = Instant::now();
        let mut responder = EchoResponder::new([7; 32], start);
        for n in 0..60_000 {
            let now = start + Duration::from_micros(16) * n;
            let _ = welcomed(&mut responder, now, address(n % 4096));
        }
        // Those of a second, and the second's worth that may be saved up.
        let hashes = responder.hashes.get();
        assert!((200..=400).contains(&hashes), "{hashes}");
    }

    #[test]
    fn forged_cookies_do_not_silence_who_has_shown_its_own() {
        let start = Instant::now();
        let mut responder = EchoResponder::new([7; 32], start);
        let cookie = welcomed(&mut responder, start, address(1)).unwrap();
        let mut ask = |now, from, cookie| answer(&mut responder, now, from, &question(cookie, 1));
        assert!(ask(start, address(1), cookie).is_some());
        for n in 0..60_000 {
            let now = start + Duration::from_micros(17) * n;
            // From other addresses, and from its own.
            assert!(ask(now, address(2 + n % 4096), [9; 16]).is_none());
            assert!(ask(now, address(1), [9; 16]).is_none());
            if n % 1000 == 999 {
                assert!(ask(now, address(1), cookie).is_some(), "silenced by {n}");
            }
        }
        let known = responder.known.young.len() + responder.known.old.len();
        assert_eq!(known, 1, "who shows no cookie takes no place");
    }

    #[test]
    fn of_those_who_have_shown_a_cookie_a_bounded_number_is_known() {
        let now = Instant::now();
        let mut responder = EchoResponder::new([7; 32], now);
        let mut answered = 0;
        for n in 0..20_000 {
            let now = now + Duration::from_millis(n.into());
            let cookie = responder.cookie(responder.epoch(now), address(n));
            let answer = answer(&mut responder, now, address(n), &question(cookie, 1));
            answered += usize::from(answer.is_some());
        }
        assert_eq!(answered, 20_000);
        let known = responder.known.young.len() + responder.known.old.len();
        assert!(known <= 2 * MAX_KNOWN, "{known}");
    }

    #[test]
    fn only_whole_datagrams_of_a_known_kind_are_read() {
        let whole = question([3; 16], 0x0102_0304);
        let read = EchoMessage::decode(&whole).unwrap();
        assert_eq!(read.encode(), whole);
        for length in 0..ECHO_BYTES {
            assert_eq!(EchoMessage::decode(&whole[..length]), None);
        }
        assert_eq!(EchoMessage::decode(&[&whole[..], &[0]].concat()), None);
        let mut strange = whole;
        strange[7] = 4;
        assert_eq!(EchoMessage::decode(&strange), None);
    }
}
