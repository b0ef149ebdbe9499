//! Where hellos came from that may be replays.

use std::collections::VecDeque;

use starhaul_leotp::hello_challenges;

use crate::bulk::Way;

/// Those of a neighbour that are kept at most: as many as a node has challenges that wait for their echo.
const MOST: usize = 8;

/// Ways on which hellos came that may be replays, each with the challenge of its hello. The hello that echoes a challenge goes there: one that was
/// recorded, and is sent again and again from wherever, takes the answer from no neighbour that lives.
#[derive(Debug, Default)]
pub(super) struct Unproven(VecDeque<([u8; 8], Way)>);

impl Unproven {
    /// Notes the way of an authentic hello. Of too many, those with the same challenge go first.
    pub(super) fn note(&mut self, hello: &[u8], way: Way) {
        let Some(challenges) = hello_challenges(hello) else {
            return;
        };
        let entry = (challenges.own, way);
        if self.0.contains(&entry) {
            return;
        }
        if self.0.len() >= MOST {
            let same = self.position(challenges.own).unwrap_or(0);
            self.0.remove(same);
        }
        self.0.push_back(entry);
    }

    /// The way of the hello that this one answers; of several in turn. With `stays` later hellos with that echo go there, too.
    pub(super) fn answered_by(&mut self, hello: &[u8], stays: bool) -> Option<Way> {
        let at = self.position(hello_challenges(hello)?.echo)?;
        let entry = self.0.remove(at)?;
        if stays {
            self.0.push_back(entry);
        }
        Some(entry.1)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, challenge: [u8; 8]) -> Option<usize> {
        self.0.iter().position(|(of, _)| *of == challenge)
    }
}
