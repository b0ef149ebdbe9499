//! Sets the rate of a dedicated path, and what is told of its bit errors, from a file or a local socket, to which for example a modem's driver
//! writes both (dedicated links of MPDTP).

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_endpoint::RateFeed;
use starhaul_units::Bandwidth;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::UnixStream,
    time::Instant,
};

/// Interval of reading a file, and of trying a socket that is absent.
const INTERVAL: Duration = Duration::from_millis(200);
/// The longest text that can be a rate with its bit-error rate.
const MAX_TEXT_BYTES: usize = 64;
/// A bit-error rate is forgotten when the feed could not be read, or was not valid, for so long: the path of a modem that has died would count as a bad one
/// for ever.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);
/// What stands before the bit-error rate.
const BIT_ERRORS: &str = "ber=";

/// Follows the feed until dropped. While it cannot be read or holds no rate, the rate stays as it is, and for a while what it told of bit errors.
pub(crate) async fn follow(path: PathBuf, feed: RateFeed) {
    follow_patiently(path, feed, FORGOTTEN_AFTER).await;
}

async fn follow_patiently(path: PathBuf, feed: RateFeed, patience: Duration) {
    let mut complained = false;
    let mut silent_since = None;
    loop {
        let read = read_once(&path, &feed, &mut silent_since).await;
        if silent_since.get_or_insert_with(Instant::now).elapsed() >= patience {
            feed.set_bit_error_rate(None);
        }
        match read {
            Ok(()) => complained = false,
            Err(error) if !complained => {
                tracing::warn!(feed = %path.display(), %error, "the rate stays as it is");
                complained = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Reads a file once, or a socket until it ends. Each word ends the silence: that of a socket may have begun long before it was heard of.
async fn read_once(
    path: &Path,
    feed: &RateFeed,
    silent_since: &mut Option<Instant>,
) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    // One byte more shows that it is too long.
    const MOST: u64 = MAX_TEXT_BYTES as u64 + 1;
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_socket() {
        let mut lines = BufReader::new(UnixStream::connect(path).await?);
        loop {
            let mut line = String::new();
            let length = (&mut lines).take(MOST).read_line(&mut line).await?;
            if length == 0 {
                return Ok(());
            }
            set(feed, &line)?;
            *silent_since = None;
        }
    }
    if !kind.is_file() {
        return Err(io::Error::other("neither a file nor a socket"));
    }
    // A small local file: reading it takes no time.
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MOST)
        .read_to_string(&mut text)?;
    set(feed, &text)?;
    *silent_since = None;
    Ok(())
}

fn set(feed: &RateFeed, text: &str) -> io::Result<()> {
    let (rate, bit_errors) =
        parse(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    feed.set(rate);
    feed.set_bit_error_rate(bit_errors);
    Ok(())
}

/// A rate, and the share of wrong bits if that is told: `8.5mbit`, or `8.5mbit ber=1e-7`.
fn parse(text: &str) -> Result<(Bandwidth, Option<f64>), String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!(
            "a text of more than {MAX_TEXT_BYTES} bytes is no rate"
        ));
    }
    let text = text.trim();
    let (rate, bit_errors) = match text.split_once(BIT_ERRORS) {
        Some((rate, share)) if rate.ends_with(char::is_whitespace) => (rate.trim(), Some(share)),
        _ => (text, None),
    };
    let rate = rate
        .parse::<Bandwidth>()
        .map_err(|error| error.to_string())?;
    let share = bit_errors.map(|share| {
        let parsed: Option<f64> = share.parse().ok();
        parsed
            .filter(|share| (0.0..=1.0).contains(share))
            .ok_or_else(|| format!("{share:?} is no bit-error rate from 0 to 1"))
    });
    Ok((rate, share.transpose()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use tokio::net::UnixListener;

    use super::*;

    async fn until_rate(feed: &RateFeed, mbit: u64) {
        let come = async {
            while feed.rate() != Bandwidth::from_mbit(mbit) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let hang = Duration::from_secs(60);
        tokio::time::timeout(hang, come)
            .await
            .expect("the rate never comes");
    }

    #[tokio::test]
    async fn a_file_is_followed_and_nonsense_in_it_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rate");
        let feed = RateFeed::new(Bandwidth::from_mbit(1));
        let following = tokio::spawn(follow(file.clone(), feed.clone()));
        for (text, mbit) in [("5mbit\n", 5), ("7 Mbit/s", 7)] {
            std::fs::write(&file, text).unwrap();
            until_rate(&feed, mbit).await;
        }
        for wrong in ["fast", "", &"1".repeat(1000)] {
            std::fs::write(&file, wrong).unwrap();
            assert!(
                read_once(&file, &feed, &mut None).await.is_err(),
                "{wrong:?}"
            );
            assert_eq!(feed.rate(), Bandwidth::from_mbit(7));
        }
        following.abort();
    }

    async fn until_bit_errors(feed: &RateFeed, told: Option<f64>) {
        let come = async {
            while feed.bit_error_rate() != told {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let hang = Duration::from_secs(60);
        let come = tokio::time::timeout(hang, come).await;
        come.unwrap_or_else(|_| panic!("never {told:?}"));
    }

    #[tokio::test]
    async fn bit_errors_are_told_until_they_are_taken_back_or_the_feed_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rate");
        let feed = RateFeed::new(Bandwidth::from_mbit(1));
        let patience = Duration::from_millis(300);
        let following = tokio::spawn(follow_patiently(file.clone(), feed.clone(), patience));
        let next = directory.path().join("next");
        for (text, mbit, told) in [
            ("5mbit ber=1e-7\n", 5, Some(1e-7)),
            ("6 Mbit/s\tber=0", 6, Some(0.0)),
            ("7mbit", 7, None),
            ("8mbit ber=0.5", 8, Some(0.5)),
        ] {
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, &file).unwrap();
            until_rate(&feed, mbit).await;
            until_bit_errors(&feed, told).await;
        }
        std::fs::remove_file(&file).unwrap();
        until_bit_errors(&feed, None).await;
        assert_eq!(feed.rate(), Bandwidth::from_mbit(8), "it stays");
        following.abort();
    }

    /// The feed was absent for long before the driver came; then its last line is none.
    #[tokio::test]
    async fn a_word_is_the_end_of_silence_though_nonsense_follows_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("modem.sock");
        let feed = RateFeed::new(Bandwidth::from_mbit(1));
        let modem = UnixListener::bind(&path).unwrap();
        let mut silent_since = Some(Instant::now());
        let read = read_once(&path, &feed, &mut silent_since);
        let write = async {
            let (client, _) = modem.accept().await.unwrap();
            let mut client = client.into_std().unwrap();
            client.write_all(b"5mbit ber=1e-7\nnonsense\n").unwrap();
        };
        let (read, ()) = tokio::join!(read, write);
        assert!(read.is_err());
        assert_eq!(feed.bit_error_rate(), Some(1e-7));
        assert!(silent_since.is_none(), "it would be forgotten at once");
    }

    proptest! {
        /// Whatever a modem's driver writes, there is a rate with a share of wrong bits, or an error.
        #[test]
        fn no_text_is_taken_for_more_than_it_says(text in "([0-9.]{0,4} ?(bit|kbit|mbit|gbit|Mbit/s)?[ \t\n]*)?(ber=)?\\PC{0,12}") {
            if let Ok((_, Some(share))) = parse(&text) {
                prop_assert!((0.0..=1.0).contains(&share), "{text:?}: {share}");
                prop_assert!(text.contains(BIT_ERRORS), "{text:?}: {share}");
            }
        }

        #[test]
        fn what_is_written_is_read(mbit in 0..100_000_u64, share in 0.0..=1.0_f64) {
            let rate = Bandwidth::from_mbit(mbit);
            prop_assert_eq!(parse(&format!("{mbit}mbit\n")), Ok((rate, None)));
            let both = parse(&format!(" {mbit} mbit  ber={share:e}\n"));
            prop_assert_eq!(both, Ok((rate, Some(share))));
        }
    }

    #[test]
    fn what_is_no_bit_error_rate_is_refused_with_its_rate() {
        let long = format!("5mbit{}ber=1e-7", " ".repeat(60));
        for wrong in [
            "5mbit ber=",
            "5mbit ber=1.1",
            "5mbit ber=-1e-7",
            "5mbit ber=nan",
            "5mbit ber=inf",
            "5mbitber=1e-7",
            "ber=1e-7",
            "5mbit ber=1e-7 ber=1e-8",
            "5mbit 1e-7",
            &long,
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn a_socket_is_followed_line_by_line_and_again_when_it_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("modem.sock");
        let feed = RateFeed::new(Bandwidth::from_mbit(1));
        let following = tokio::spawn(follow(path.clone(), feed.clone()));
        for rates in [[2, 3], [4, 5]] {
            let modem = UnixListener::bind(&path).unwrap();
            let (client, _) = modem.accept().await.unwrap();
            let mut client = client.into_std().unwrap();
            for mbit in rates {
                client
                    .write_all(format!("{mbit}mbit\n").as_bytes())
                    .unwrap();
                until_rate(&feed, mbit).await;
            }
            drop((modem, client));
            std::fs::remove_file(&path).unwrap();
        }
        following.abort();
    }
}
