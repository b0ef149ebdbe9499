//! Where hellos came from that may be replays.

use std::collections::VecDeque;

use starhaul_leotp::hello_challenges;

use crate::bulk::Way;

/// Those of a neighbour that are kept at most: as many as a node has challenges that wait for their echo.
const MOST: usize = 8;
/// Hellos that leave for one that came, at most, where no address of the neighbour is known; they follow within 14 s. One that was recorded, and is said
/// to come from some other host, costs that host no more than these.
pub(super) const ANSWERS: u8 = 8;

/// Ways on which hellos came that may be replays, each with the challenge of its hello. The hello that echoes a challenge goes there: one that was
/// recorded, and is sent again and again from wherever, takes the answer from no neighbour that lives.
#[derive(Debug, Default)]
pub(super) struct Unproven(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    challenge: [u8; 8],
    way: Way,
    /// Hellos that may still leave for it.
    left: u8,
}

impl Unproven {
    /// Notes the way of an authentic hello. Of too many, those with the same challenge go first.
    pub(super) fn note(&mut self, hello: &[u8], way: Way) {
        let Some(challenges) = hello_challenges(hello) else {
            return;
        };
        let challenge = challenges.own;
        let is_same = |entry: &&mut Entry| entry.challenge == challenge && entry.way == way;
        if let Some(entry) = self.0.iter_mut().find(is_same) {
            entry.left = ANSWERS;
            return;
        }
        if self.0.len() >= MOST {
            let same = self.position(challenge).unwrap_or(0);
            self.0.remove(same);
        }
        self.0.push_back(Entry {
            challenge,
            way,
            left: ANSWERS,
        });
    }

    /// The way of the hello that this one answers; of several in turn. With `stays` some later hellos with that echo go there, too.
    pub(super) fn answered_by(&mut self, hello: &[u8], stays: bool) -> Option<Way> {
        let at = self.position(hello_challenges(hello)?.echo)?;
        let mut entry = self.0.remove(at)?;
        let way = entry.way;
        entry.left = entry.left.saturating_sub(1);
        if stays && entry.left > 0 {
            self.0.push_back(entry);
        }
        Some(way)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, challenge: [u8; 8]) -> Option<usize> {
        self.0.iter().position(|entry| entry.challenge == challenge)
    }
}
