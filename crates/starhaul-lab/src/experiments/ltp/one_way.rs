//! Files over a link without a way back: how many arrive by their repair segments alone, and what these take of the link.

use std::time::Duration;

use starhaul_ltp::{Coding, PeerConfig};
use starhaul_plot::Column;
use starhaul_units::Bandwidth;

use super::pair::{Pair, content};
use crate::Error;

const RATE_MBIT: u64 = 20;
const LIGHT: Duration = Duration::from_secs(1);
const LOSSES: [f64; 4] = [0.0, 0.01, 0.05, 0.1];
const FILE_BYTES: [usize; 3] = [100_000, 500_000, 2_000_000];
const FILES: usize = 1000;

/// Files of one length over a link that loses some packets and carries none back.
#[derive(Clone, Copy, Debug)]
pub struct OneWay {
    /// Share of packets that is lost, as both ends are told.
    pub loss: f64,
    /// Bytes of each file, which is a block.
    pub bytes: usize,
    /// Number of files that are sent.
    pub files: usize,
    /// Seed of everything random.
    pub seed: u64,
}

/// What became of the files.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    setup: OneWay,
    /// Those that arrived, with the bytes that were sent.
    pub delivered: usize,
    /// Bytes of LTP beside those of the files, per byte of the files.
    pub overhead: f64,
    /// Packets of the receiver.
    pub answers: u64,
    /// Share of the link's rate until the last file had left.
    pub used: f64,
}

/// Each length at each loss.
pub fn setups(quick: bool, seed: u64) -> Vec<OneWay> {
    let (losses, files): (&[f64], usize) = match quick {
        true => (&[0.05], FILES / 10),
        false => (&LOSSES, FILES),
    };
    let at = |loss: &f64| {
        let loss = *loss;
        FILE_BYTES.map(|bytes| OneWay {
            loss,
            bytes,
            files,
            seed,
        })
    };
    losses.iter().flat_map(at).collect()
}

/// The table of such runs.
pub(super) fn columns() -> Vec<Column<Arrived>> {
    vec![
        Column::number("file_kb", "file", "kB", 0, |row: &Arrived| {
            (row.setup.bytes as f64 / 1e3).into()
        }),
        Column::number("loss", "loss", "%", 0, |row: &Arrived| {
            (row.setup.loss * 100.0).into()
        }),
        Column::count("seed", "seed", |row: &Arrived| row.setup.seed.into()).dropped(),
        Column::count("files", "files", |row: &Arrived| row.setup.files.into()).total(),
        Column::count("arrived", "arrived", |row: &Arrived| row.delivered.into()).total(),
        Column::number("overhead", "overhead", "%", 1, |row: &Arrived| {
            (row.overhead * 100.0).into()
        })
        .median(),
        Column::number("used", "link used", "%", 1, |row: &Arrived| {
            (row.used * 100.0).into()
        })
        .median(),
        Column::count("answers", "packets back", |row: &Arrived| {
            row.answers.into()
        })
        .total(),
    ]
}

impl OneWay {
    /// Runs it.
    ///
    /// # Errors
    /// A session never ends, or a file that arrives is not the one that was sent.
    pub fn run(&self) -> Result<Arrived, Error> {
        let rate = Bandwidth::from_mbit(RATE_MBIT);
        let mut config = PeerConfig::new(LIGHT, Some(rate));
        config.is_one_way = true;
        config.coding = Some(Coding::new(self.loss));
        let (light, loss) = (LIGHT.as_secs(), self.loss * 100.0);
        let forward = format!("rate={RATE_MBIT}mbit,delay={light}s,loss={loss}%,queue=100p");
        let backward = format!("delay={light}s");
        let block = content(self.bytes);
        let mut pair = Pair::new(self.seed, &config, (&forward, &backward), &block)?;
        for _ in 0..self.files {
            pair.send()?;
        }
        pair.finish()?;
        let (sender, receiver, carried) = (pair.sender(), pair.receiver(), pair.carried());
        if receiver.damaged > 0 {
            return Err(Error::Failed("a file arrived with other bytes".into()));
        }
        let last = sender.noted.last().map_or(pair.start, |(_, at)| *at);
        let took = last.saturating_duration_since(pair.start);
        let files = (self.files * self.bytes) as f64;
        Ok(Arrived {
            setup: *self,
            delivered: receiver.noted.len(),
            overhead: (carried.ltp_bytes as f64 - files) / files.max(1.0),
            answers: carried.answers,
            used: Bandwidth::from_bytes_over(carried.bytes, took).mbit() / rate.mbit(),
        })
    }
}
