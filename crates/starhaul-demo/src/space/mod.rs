//! `starhaul demo --space`: a lander sends pictures to a station over an orbiter. No contact joins all three at once, signals
//! take seconds, and some are lost.
//!
//! Time is told sixty times as fast as it passes: an hour of contacts takes a minute.

mod nodes;
mod view;

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use serde::Serialize;
use starhaul_dtn_client::status::Status;

pub use view::{SpaceLive, space_table};

use crate::Error;

/// How many seconds are told for one that passes.
pub const FASTER: u32 = 60;
/// Told one-way light time of either link.
pub const LIGHT_TIME: Duration = Duration::from_secs(4);
/// When the run is given up; all contacts are over by then.
const MOST: Duration = Duration::from_secs(57);
/// Interval at which the station's folder is checked.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two pictures, as it passes.
const PICTURE_EVERY: Duration = Duration::from_millis(2500);

/// Pictures, losses and seed of the demo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceOptions {
    /// Pictures that the lander takes.
    pub pictures: usize,
    /// Share of packets that each link loses.
    pub loss: f64,
    /// Seed of pictures and losses.
    pub seed: u64,
}

impl Default for SpaceOptions {
    fn default() -> Self {
        Self {
            pictures: 8,
            loss: 0.05,
            seed: 1,
        }
    }
}

/// The three nodes at one moment.
#[derive(Clone, Debug)]
pub struct SpaceProgress {
    /// Told time since the start.
    pub told: Duration,
    /// Lander, orbiter and station.
    pub nodes: Vec<Status>,
    /// Pictures so far.
    pub pictures: Vec<Picture>,
}

/// A picture; times are told ones since the start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// Its file name.
    pub name: String,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// When the lander took it.
    pub taken_s: f64,
    /// When the station had it.
    pub arrived_s: Option<f64>,
    /// Whether the station's file has the SHA-256 of the lander's.
    pub is_equal: bool,
}

/// The outcome of the demo.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpaceResult {
    /// How many seconds were told for one that passed.
    pub faster: u32,
    /// Told one-way light time.
    pub light_time_s: f64,
    /// Share of packets lost on each link.
    pub loss: f64,
    /// The pictures, in the order in which the lander took them.
    pub pictures: Vec<Picture>,
    /// LTP data segments that lander and orbiter sent.
    pub segments: u64,
    /// Those among them that were sent again.
    pub resent: u64,
    /// Length of the run in told seconds.
    pub told_s: f64,
}

impl SpaceResult {
    /// Whether every picture arrived as it was taken.
    pub fn is_complete(&self) -> bool {
        self.pictures
            .iter()
            .all(|picture| picture.arrived_s.is_some() && picture.is_equal)
    }
}

/// Runs the three nodes until all pictures have arrived, or the last contact is over, or `told_to_end` returns. However it ends,
/// their files are removed.
///
/// # Errors
/// The nodes or the links cannot be started, a node stopped answering, or the run was told to end.
pub async fn run_space(
    options: SpaceOptions,
    told_to_end: impl Future<Output = ()>,
    tell: impl FnMut(&SpaceProgress),
) -> Result<SpaceResult, Error> {
    let mut told_to_end = pin!(told_to_end);
    let ended = || Error::Failed("it was told to end before all pictures had arrived".into());
    let mut nodes = tokio::select! {
        nodes = nodes::Nodes::start(options) => nodes?,
        () = &mut told_to_end => return Err(ended()),
    };
    let result = tokio::select! {
        result = watch(&mut nodes, options, tell) => result,
        () = &mut told_to_end => Err(ended()),
    };
    nodes.stop().await;
    result
}

/// Takes pictures and checks what has become of them.
async fn watch(
    nodes: &mut nodes::Nodes,
    options: SpaceOptions,
    mut tell: impl FnMut(&SpaceProgress),
) -> Result<SpaceResult, Error> {
    let (begun, mut next_picture) = (Instant::now(), Duration::ZERO);
    let mut pictures: Vec<Picture> = Vec::new();
    let told = |passed: Duration| (passed * FASTER).as_secs_f64();
    loop {
        let passed = begun.elapsed();
        if pictures.len() < options.pictures && passed >= next_picture {
            let (name, bytes) = nodes.take_picture(pictures.len()).await?;
            let (taken_s, arrived_s, is_equal) = (told(passed), None, false);
            pictures.push(Picture {
                name,
                bytes,
                taken_s,
                arrived_s,
                is_equal,
            });
            next_picture += PICTURE_EVERY;
        }
        nodes.update_links(passed);
        for picture in pictures
            .iter_mut()
            .filter(|picture| picture.arrived_s.is_none())
        {
            if let Some(is_equal) = nodes.arrived(&picture.name)? {
                picture.arrived_s = Some(told(passed));
                picture.is_equal = is_equal;
            }
        }
        let progress = SpaceProgress {
            told: passed * FASTER,
            nodes: nodes.status(),
            pictures: pictures.clone(),
        };
        tell(&progress);
        let has_all = pictures.len() == options.pictures
            && pictures.iter().all(|picture| picture.arrived_s.is_some());
        if has_all || passed > MOST {
            let counters = progress.nodes.iter().map(|node| &node.counters);
            return Ok(SpaceResult {
                faster: FASTER,
                light_time_s: LIGHT_TIME.as_secs_f64(),
                loss: options.loss,
                pictures,
                segments: counters.clone().map(|counters| counters.ltp_segments).sum(),
                resent: counters.map(|counters| counters.ltp_resent).sum(),
                told_s: told(passed),
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}
