//! The demo in space as text: live on a terminal, and its result.

use std::{
    fmt::Write as _,
    io::{self, Write},
    time::{Duration, Instant},
};

use super::{FASTER, SpaceProgress, SpaceResult};

const NAMES: [&str; 3] = ["lander", "orbiter", "station"];
/// How often it is drawn, on a terminal and elsewhere.
const DRAW_EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// Shows what is stored where while it runs.
pub struct SpaceLive<W> {
    out: W,
    redraws: bool,
    lines: usize,
    drawn: Option<Instant>,
}

impl<W: Write> SpaceLive<W> {
    /// Draws to `out`; in place if `redraws`, else a few lines now and then.
    pub fn new(out: W, redraws: bool) -> Self {
        Self {
            out,
            redraws,
            lines: 0,
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
        self.erase()?;
        self.lines = if self.redraws {
            text.lines().count()
        } else {
            0
        };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Removes what was drawn in place.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn erase(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.lines) {
            0 => Ok(()),
            // Up, and clear to the end of the screen.
            lines => write!(self.out, "\x1b[{lines}A\x1b[J"),
        }
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
        let contacts = node.neighbours.iter().filter(|neighbour| neighbour.is_open);
        let contacts: Vec<&str> = contacts
            .filter_map(|neighbour| name_of(&neighbour.node))
            .collect();
        let contacts = if contacts.is_empty() {
            "no contact".to_owned()
        } else {
            format!("in contact with {}", contacts.join(", "))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {name:8} stores {:2} bundles {:>9} bytes, {:2} on their way; {contacts}",
            node.storage.bundles, node.storage.bytes, node.storage.in_flight
        );
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
