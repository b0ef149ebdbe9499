//! The demo in space as text: live on a terminal, and its result.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::{Duration, Instant},
};

use starhaul_dtn_client::status::Status;

use super::{FASTER, SpaceProgress, SpaceResult};
use crate::terminal::InPlace;

const NAMES: [&str; 3] = ["lander", "orbiter", "station"];
/// How often it is drawn, on a terminal and elsewhere.
const DRAW_EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// Shows what is stored where while it runs.
pub struct SpaceLive<W> {
    out: W,
    redraws: bool,
    place: InPlace,
    drawn: Option<Instant>,
}

impl<W: Write> SpaceLive<W> {
    /// Draws to `out`; in place if `redraws`, else a few lines now and then.
    pub fn new(out: W, redraws: bool) -> Self {
        Self {
            out,
            redraws,
            place: InPlace::default(),
            drawn: None,
        }
    }

    /// Draws the present state if it is time to.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn show(&mut self, progress: &SpaceProgress) -> io::Result<()> {
        let [in_place, elsewhere] = DRAW_EVERY;
        let every = if self.redraws { in_place } else { elsewhere };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < every) {
            return Ok(());
        }
        self.drawn = Some(Instant::now());
        let text = text(progress);
        match self.redraws {
            true => self.place.draw(&mut self.out, &text),
            false => {
                self.out.write_all(text.as_bytes())?;
                self.out.flush()
            }
        }
    }

    /// Removes what was drawn in place.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn erase(&mut self) -> io::Result<()> {
        self.place.erase(&mut self.out)
    }
}

fn text(progress: &SpaceProgress) -> String {
    let seconds = progress.told.as_secs();
    let mut text = format!(
        "{:02}:{:02}:{:02} told, {FASTER} times as fast as it passes\n",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    for (name, node) in NAMES.iter().zip(&progress.nodes) {
        text += &line(name, node);
    }
    let arrived = progress
        .pictures
        .iter()
        .filter(|picture| picture.is_equal)
        .count();
    let _ = writeln!(
        text,
        "  {arrived} of {} pictures at the station, hashes equal",
        progress.pictures.len()
    );
    text
}

fn line(name: &str, node: &Status) -> String {
    let contacts = node.neighbours.iter().filter(|neighbour| neighbour.is_open);
    let contacts: Vec<&str> = contacts
        .filter_map(|neighbour| name_of(&neighbour.node))
        .collect();
    let contacts = if contacts.is_empty() {
        "no contact".to_owned()
    } else {
        format!("sees {}", contacts.join(", "))
    };
    let storage = &node.storage;
    format!(
        "  {name:8} {:2} bundles, {:>9} bytes, {:2} on their way; {contacts}\n",
        storage.bundles, storage.bytes, storage.in_flight
    )
}

fn name_of(node: &str) -> Option<&'static str> {
    let number: usize = node
        .strip_prefix("ipn:")?
        .strip_suffix(".0")?
        .parse()
        .ok()?;
    NAMES.get(number.checked_sub(1)?).copied()
}

/// The result as a table.
pub fn space_table(result: &SpaceResult) -> String {
    let mut text = format!(
        "Times are told {} times as fast as they pass: {:.0} min, light time {:.0} s, {:.0} % of packets lost on each link.\n\n",
        result.faster,
        result.told_s / 60.0,
        result.light_time_s,
        result.loss * 100.0
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:16} {:>8} {:>10} {:>10}  hash",
        "picture", "bytes", "taken", "arrived"
    );
    for picture in &result.pictures {
        let minutes = |seconds: f64| format!("{:.1} min", seconds / 60.0);
        let arrived = picture.arrived_s.map_or("not".to_owned(), minutes);
        let hash = if picture.is_equal { "equal" } else { "-" };
        let _ = writeln!(
            text,
            "{:16} {:>8} {:>10} {arrived:>10}  {hash}",
            picture.name,
            picture.bytes,
            minutes(picture.taken_s)
        );
    }
    let _ = writeln!(
        text,
        "\n{} segments of LTP, {} of them sent again",
        result.segments, result.resent
    );
    text
}

#[cfg(test)]
mod tests {
    use starhaul_dtn_client::status::NeighbourStatus;

    use super::*;
    use crate::terminal::{COLUMNS, width};

    #[test]
    fn the_view_fits_a_terminal_nobody_has_widened() {
        let mut node = Status::default();
        node.storage.bundles = 9_999;
        node.storage.bytes = 999_999_999;
        node.storage.in_flight = 999;
        for number in [1, 2, 3] {
            node.neighbours.push(NeighbourStatus {
                node: format!("ipn:{number}.0"),
                is_open: number != 2,
                ..NeighbourStatus::default()
            });
        }
        let progress = SpaceProgress {
            told: Duration::from_secs(99 * 3600),
            nodes: vec![node; 3],
            pictures: Vec::new(),
        };
        let text = text(&progress);
        assert!(text.contains("sees lander, station"), "{text}");
        assert!(width(&text) <= COLUMNS, "{}\n{text}", width(&text));
    }
}
