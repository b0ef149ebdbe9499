//! What the applications send: text, audio and video blocks, each class with its size, rate, deadline and priority.
//! The loads are those of MPDTP §V as `docs/deadlines.md` settles them: I frames of 100 kB each second, P frames of 20 kB.

use std::time::Duration;

use serde::Serialize;

/// A class of application traffic, in order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Short messages: 20 per second of 200 B, 800 ms.
    Text,
    /// Voice: 47 per second of 2.5 kB, 1 s.
    Audio,
    /// Pictures: 24 per second, an I frame of 100 kB each second and P frames of 20 kB, 3 s.
    Video,
}

/// Which of the applications run: all, or those alone whose figures the others change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applications {
    /// Text, audio, video and the download.
    #[default]
    All,
    /// Text, audio and video: their latency while nothing fills the links.
    Blocks,
    /// The download: its rate while nothing else needs the links.
    Download,
}

impl Applications {
    /// All choices.
    pub const ALL: [Self; 3] = [Self::All, Self::Blocks, Self::Download];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Blocks => "blocks",
            Self::Download => "download",
        }
    }

    /// Whether text, audio and video are sent.
    pub const fn have_blocks(self) -> bool {
        !matches!(self, Self::Download)
    }

    /// Whether something is downloaded.
    pub const fn have_download(self) -> bool {
        !matches!(self, Self::Blocks)
    }

    pub(crate) fn are_all(&self) -> bool {
        *self == Self::All
    }
}

/// A value for each class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classes<T> {
    /// The value of [`Class::Text`].
    pub text: T,
    /// The value of [`Class::Audio`].
    pub audio: T,
    /// The value of [`Class::Video`].
    pub video: T,
}

impl<T> Classes<T> {
    /// Makes the value of each class.
    pub fn from_fn(mut make: impl FnMut(Class) -> T) -> Self {
        Self {
            text: make(Class::Text),
            audio: make(Class::Audio),
            video: make(Class::Video),
        }
    }

    /// The value of a class.
    pub const fn of(&self, class: Class) -> &T {
        match class {
            Class::Text => &self.text,
            Class::Audio => &self.audio,
            Class::Video => &self.video,
        }
    }

    /// The value of a class, to change it.
    pub const fn of_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Text => &mut self.text,
            Class::Audio => &mut self.audio,
            Class::Video => &mut self.video,
        }
    }
}

/// One block of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// Class of the block.
    pub class: Class,
    /// Its number within the class, from 0.
    pub sequence: u32,
    /// When it is sent, counted from the start.
    pub at: Duration,
    /// Its size in bytes.
    pub bytes: usize,
    /// An I frame of the video; P frames depend on the last one.
    pub key: bool,
}

impl Class {
    /// All classes, most important first.
    pub const ALL: [Self; 3] = [Self::Text, Self::Audio, Self::Video];

    /// The name used in tables, JSON and rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }

    /// Time from sending by which a block must have arrived whole.
    pub const fn deadline(self) -> Duration {
        match self {
            Self::Text => Duration::from_millis(800),
            Self::Audio => Duration::from_secs(1),
            Self::Video => Duration::from_secs(3),
        }
    }

    /// 1 (text) to 3 (video); smaller is more important.
    pub const fn priority(self) -> u8 {
        match self {
            Self::Text => 1,
            Self::Audio => 2,
            Self::Video => 3,
        }
    }

    /// Weight of a block on time in the QoE: {3, 2, 1} / 3.
    pub fn weight(self) -> f64 {
        f64::from(4 - self.priority()) / 3.0
    }

    /// Blocks per second.
    pub const fn rate(self) -> u32 {
        match self {
            Self::Text => 20,
            Self::Audio => 47,
            Self::Video => 24,
        }
    }

    /// The block with number `sequence`.
    pub fn block(self, sequence: u32) -> BlockSpec {
        let rate = self.rate();
        let key = self == Self::Video && sequence.is_multiple_of(rate);
        let bytes = match self {
            Self::Text => 200,
            Self::Audio => 2_500,
            Self::Video if key => 100_000,
            Self::Video => 20_000,
        };
        let at = Duration::from_nanos(u64::from(sequence) * 1_000_000_000 / u64::from(rate));
        BlockSpec {
            class: self,
            sequence,
            at,
            bytes,
            key,
        }
    }

    /// The blocks of this class sent during `duration`.
    pub fn blocks(self, duration: Duration) -> impl Iterator<Item = BlockSpec> {
        (0..)
            .map(move |sequence| self.block(sequence))
            .take_while(move |block| block.at < duration)
    }

    /// Bytes per second that the class offers.
    pub fn bytes_per_second(self) -> u64 {
        self.blocks(Duration::from_secs(1))
            .map(|block| block.bytes as u64)
            .sum()
    }
}

/// The blocks of all classes sent during `duration`, in order of time.
pub fn schedule(duration: Duration) -> Vec<BlockSpec> {
    let mut blocks: Vec<_> = Class::ALL
        .into_iter()
        .flat_map(|class| class.blocks(duration))
        .collect();
    blocks.sort_by_key(|block| (block.at, block.class));
    blocks
}

/// Bytes per second that all classes offer together.
pub fn offered_bytes_per_second() -> u64 {
    Class::ALL.into_iter().map(Class::bytes_per_second).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_one_that_is_documented() {
        let one_second = Duration::from_secs(1);
        assert_eq!(Class::Text.blocks(one_second).count(), 20);
        assert_eq!(Class::Audio.bytes_per_second(), 47 * 2_500);
        assert_eq!(Class::Video.bytes_per_second(), 100_000 + 23 * 20_000);
        assert_eq!(
            Class::Video
                .blocks(3 * one_second)
                .filter(|block| block.key)
                .count(),
            3
        );
        let all = schedule(2 * one_second);
        assert_eq!(all.len(), 2 * (20 + 47 + 24));
        assert!(all.is_sorted_by_key(|block| block.at));
    }
}
