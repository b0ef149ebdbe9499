//! What is drawn over itself again and again on a terminal.

use std::io::{self, Write};

/// Lines are made for the columns that a terminal usually has.
pub(crate) const COLUMNS: usize = 80;

/// A narrower terminal cuts lines off: one that wraps would be two, of which the next drawing erased one.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The last lines on a terminal, drawn in place.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    lines: usize,
}

impl InPlace {
    /// Draws text in place of what was drawn before.
    pub(crate) fn draw(&mut self, out: &mut impl Write, text: &str) -> io::Result<()> {
        let erase = self.erasure();
        self.lines = text.lines().count();
        // In one write, so that a program that is ended leaves a terminal that wraps.
        out.write_all(format!("{erase}{NO_WRAP}{text}{WRAP}").as_bytes())?;
        out.flush()
    }

    /// Removes what was drawn, so that something else can take its place.
    pub(crate) fn erase(&mut self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.erasure().as_bytes())?;
        out.flush()
    }

    /// Up, and clear to the end of the screen.
    fn erasure(&mut self) -> String {
        match std::mem::take(&mut self.lines) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }
}

/// The greatest number of characters in a line, without the codes that draw none.
#[cfg(test)]
pub(crate) fn width(text: &str) -> usize {
    let shown = |line: &str| {
        let mut parts = line.split('\x1b');
        let first = parts.next().unwrap_or_default().chars().count();
        let rest = parts.map(|part| {
            let code = part.find(|c: char| c.is_ascii_alphabetic());
            part[code.map_or(0, |code| code + 1)..].chars().count()
        });
        first + rest.sum::<usize>()
    };
    text.lines().map(shown).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_drawing_erases_the_one_before_and_leaves_wrapping_on() {
        let (mut out, mut place) = (Vec::new(), InPlace::default());
        place.draw(&mut out, "one\ntwo\n").unwrap();
        place.draw(&mut out, "three\n").unwrap();
        place.erase(&mut out).unwrap();
        place.erase(&mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        let expected =
            "\x1b[?7lone\ntwo\n\x1b[?7h\x1b[2A\x1b[J\x1b[?7lthree\n\x1b[?7h\x1b[1A\x1b[J";
        assert_eq!(said, expected);
        assert_eq!(width("\x1b[1mab\x1b[0mcd\nx"), 4);
    }
}
