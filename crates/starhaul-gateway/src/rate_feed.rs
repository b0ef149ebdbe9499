//! Sets the rate of a dedicated path from a file or a local socket, to which for example a modem's driver writes it
//! (dedicated links of MPDTP).

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
};

/// Interval of reading a file, and of trying a socket that is absent.
const INTERVAL: Duration = Duration::from_millis(200);
/// The longest text that can be a rate.
const MAX_TEXT_BYTES: u64 = 64;

/// Follows the feed until dropped. While it cannot be read or holds no rate, the rate stays as it is.
pub(crate) async fn follow(path: PathBuf, rate: RateFeed) {
    let mut complained = false;
    loop {
        match read_once(&path, &rate).await {
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

/// Reads a file once, or a socket until it ends.
async fn read_once(path: &Path, rate: &RateFeed) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_socket() {
        let mut lines = BufReader::new(UnixStream::connect(path).await?);
        loop {
            let mut line = String::new();
            if (&mut lines)
                .take(MAX_TEXT_BYTES)
                .read_line(&mut line)
                .await?
                == 0
            {
                return Ok(());
            }
            set(rate, &line)?;
        }
    }
    if !kind.is_file() {
        return Err(io::Error::other("neither a file nor a socket"));
    }
    // A small local file: reading it takes no time.
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_TEXT_BYTES)
        .read_to_string(&mut text)?;
    set(rate, &text)
}

fn set(rate: &RateFeed, text: &str) -> io::Result<()> {
    let parsed: Bandwidth = text
        .trim()
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    rate.set(parsed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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
            assert!(read_once(&file, &feed).await.is_err(), "{wrong:?}");
            assert_eq!(feed.rate(), Bandwidth::from_mbit(7));
        }
        following.abort();
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
