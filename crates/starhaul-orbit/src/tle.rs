//! Two-line element sets, with or without a line for the name. The elements are parsed by `sgp4`; here stand the lines
//! around them, the bounds, and the errors that name file and line.

use std::{
    collections::BTreeSet,
    io::{BufRead, Read as _},
};

use crate::{Epoch, Error};

/// Most satellites of a file, and of a constellation.
pub const MAX_SATELLITES: usize = 20_000;
/// Most element sets of a file: some days of [`MAX_SATELLITES`], and about 100 MB.
const MAX_ELEMENT_SETS: usize = 100_000;

/// Longest line, names included.
const MAX_LINE_BYTES: u64 = 256;
/// Bytes of an element line with its checksum.
const ELEMENT_LINE_BYTES: usize = 69;

/// What some editors put at the start of a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The elements of one satellite.
#[derive(Clone, Debug, PartialEq)]
pub struct Tle {
    pub(crate) name: String,
    /// Number in the catalogue of space objects.
    pub(crate) number: u64,
    pub(crate) epoch: Epoch,
    /// None for an orbit that is not predicted.
    pub(crate) constants: Option<sgp4::Constants>,
}

impl Tle {
    /// The name, or the number in the catalogue where the file gives none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The instant that the elements are of.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the name is that of a satellite that may carry traffic: not of debris (`DEB`), of a rocket's body (`R/B`), or of a
    /// satellite marked as not operational (`[-]`), as catalogues write it.
    pub fn is_in_service(&self) -> bool {
        let mut words = self.name.split_whitespace();
        !words.any(|word| word == "DEB" || word == "[-]" || word.starts_with("R/B"))
    }
}

/// Reads element sets, each in two lines, or in three with a name before them; skips empty lines and comments (`#`). `file`
/// is used in errors. Catalogues hold a few satellites whose orbits SGP4 does not predict, such as those halfway to the Moon:
/// they are read, and a constellation leaves them out.
///
/// # Errors
/// [`Error::Line`] for a line that does not fit or a wrong checksum; [`Error::File`] for a file without satellites, or with too
/// many of them or of their elements; [`Error::Read`].
pub fn read_tles(file: &str, input: impl BufRead) -> Result<Vec<Tle>, Error> {
    let mut lines = Lines {
        file,
        input,
        number: 0,
    };
    let (mut tles, mut satellites) = (Vec::new(), BTreeSet::new());
    let (mut name, mut first): (Option<String>, Option<String>) = (None, None);
    while let Some(line) = lines.next_line()? {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(one) = first.take() {
            let tle = tle(name.take(), &one, &line).map_err(|why| lines.error(&why))?;
            satellites.insert(tle.number);
            if satellites.len() > MAX_SATELLITES {
                return Err(lines.whole(format!("has more than {MAX_SATELLITES} satellites")));
            }
            if tles.len() == MAX_ELEMENT_SETS {
                let most = format!("has more than {MAX_ELEMENT_SETS} sets of elements");
                return Err(lines.whole(most));
            }
            tles.push(tle);
        } else if line.starts_with("1 ") && line.len() == ELEMENT_LINE_BYTES {
            first = Some(line);
        } else if name.is_some() {
            return Err(lines.error(
                "is not the first line of elements, which is 69 characters and begins with 1",
            ));
        } else {
            let given = line.strip_prefix("0 ").unwrap_or(&line);
            name = Some(given.trim().to_owned());
        }
    }
    if first.is_some() {
        return Err(lines.error("is the last, and the second line of elements is missing"));
    }
    if name.is_some() {
        return Err(lines.error("is a name without elements"));
    }
    match tles.is_empty() {
        true => Err(lines.whole("has no satellites".to_owned())),
        false => Ok(tles),
    }
}

fn tle(name: Option<String>, one: &str, two: &str) -> Result<Tle, String> {
    // The parser subtracts this digit from the sum without looking at it.
    let checked = |line: &str| line.ends_with(|last: char| last.is_ascii_digit());
    if two.len() != ELEMENT_LINE_BYTES || !two.starts_with("2 ") {
        return Err(
            "is not the second line of elements, which is 69 characters and begins with 2"
                .to_owned(),
        );
    }
    if !checked(one) || !checked(two) {
        return Err("has no checksum in column 69, or the line above has none".to_owned());
    }
    let elements = sgp4::Elements::from_tle(None, one.as_bytes(), two.as_bytes())
        .map_err(|why| format!("{why}"))?;
    let angles = [
        elements.inclination,
        elements.right_ascension,
        elements.argument_of_perigee,
        elements.mean_anomaly,
    ];
    let drag = [
        elements.drag_term,
        elements.mean_motion_dot,
        elements.mean_motion_ddot,
    ];
    if !angles.iter().all(|angle| (-360.0..=360.0).contains(angle)) {
        return Err("has an angle beyond 360 degrees".to_owned());
    }
    if !drag.iter().all(|term| term.is_finite()) {
        return Err("has an infinite drag".to_owned());
    }
    let epoch = Epoch::new(elements.datetime).ok_or("has an epoch out of range")?;
    // The least is about three days, the greatest an orbit below the ground.
    let is_usual = (0.3..=18.0).contains(&elements.mean_motion);
    let constants = is_usual.then(|| sgp4::Constants::from_elements(&elements).ok());
    let name = name.filter(|name| !name.is_empty());
    Ok(Tle {
        name: name.unwrap_or_else(|| elements.norad_id.to_string()),
        number: elements.norad_id,
        epoch,
        constants: constants.flatten(),
    })
}

/// Reads lines of bounded length, and counts them.
struct Lines<'a, R> {
    file: &'a str,
    input: R,
    number: usize,
}

impl<R: BufRead> Lines<'_, R> {
    /// The next line without spaces at its end.
    fn next_line(&mut self) -> Result<Option<String>, Error> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.input).take(MAX_LINE_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        let read = read.map_err(|error| Error::Read {
            file: self.file.to_owned(),
            reason: error.to_string(),
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            return Err(self.error(&format!("is longer than {MAX_LINE_BYTES} bytes")));
        }
        let line = match self.number {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line),
            _ => &line,
        };
        let line = line.trim_ascii_end();
        let plain = |byte: &u8| *byte == b' ' || byte.is_ascii_graphic();
        match std::str::from_utf8(line) {
            Ok(text) if line.iter().all(plain) => Ok(Some(text.to_owned())),
            _ => Err(self.error("has characters that are not printable ASCII")),
        }
    }

    fn error(&self, reason: &str) -> Error {
        Error::Line {
            file: self.file.to_owned(),
            line: self.number,
            reason: reason.to_owned(),
        }
    }

    fn whole(&self, reason: String) -> Error {
        Error::File {
            file: self.file.to_owned(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Constellation;

    const ISS: &str = "ISS (ZARYA)\n\
        1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n\
        2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008\n";

    /// The line with its checksum set right.
    fn summed(line: &str) -> String {
        let digits = line[..68].bytes().map(|byte| match byte {
            b'-' => 1,
            b'0'..=b'9' => u32::from(byte - b'0'),
            _ => 0,
        });
        format!("{}{}", &line[..68], digits.sum::<u32>() % 10)
    }

    /// TESS needs two weeks for a revolution, one below the ground less than an hour, and SGP4 refuses no revolution at all.
    #[test]
    fn satellites_without_a_usable_orbit_are_left_out_of_the_others() {
        let (one, two) = (ISS.lines().nth(1).unwrap(), ISS.lines().nth(2).unwrap());
        let mut text = format!("\u{feff}{ISS}");
        for (number, motion) in [("25545", " 0.07"), ("25546", "95.49"), ("25547", " 0.00")] {
            let one = summed(&one.replace("25544", number));
            let two = two.replace("25544", number).replace("15.49", motion);
            let two = two.replace("507896", "000000");
            text += &format!("{one}\n{}\n", summed(&two));
        }
        let tles = read_tles("f", text.as_bytes()).unwrap();
        assert_eq!((tles.len(), tles[0].name()), (4, "ISS (ZARYA)"));
        let constellation = Constellation::of_tles(tles.clone(), None).unwrap();
        assert_eq!(constellation.satellites()[0].name(), "ISS (ZARYA)");
        assert_eq!(
            (constellation.satellites().len(), constellation.left_out()),
            (1, 3)
        );
        assert!(Constellation::of_tles(tles[1..].to_vec(), None).is_err());
    }

    #[test]
    fn three_lines_two_lines_and_numbered_names_are_read() {
        let two_lines = ISS.split_once('\n').unwrap().1;
        let text = format!("# comment\n{ISS}\n{two_lines}0 ISS (ZARYA)  \r\n{two_lines}");
        let tles = read_tles("f", text.as_bytes()).unwrap();
        let names: Vec<_> = tles.iter().map(Tle::name).collect();
        assert_eq!(names, ["ISS (ZARYA)", "25544", "ISS (ZARYA)"]);
        assert!(
            tles[0]
                .epoch()
                .to_string()
                .starts_with("2020-07-12T21:16:01")
        );
    }

    #[test]
    fn a_file_may_hold_more_sets_of_elements_than_satellites() {
        let sets = |count| ISS.repeat(count);
        let tles = read_tles("f", sets(MAX_SATELLITES + 1).as_bytes()).unwrap();
        assert_eq!(tles.len(), MAX_SATELLITES + 1);
        let error = read_tles("f", sets(MAX_ELEMENT_SETS + 1).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("sets of elements"), "{error}");
        let numbered = (0..=MAX_SATELLITES).map(|number| {
            let lines = ISS.lines().skip(1);
            let lines = lines.map(|line| summed(&line.replace("25544", &format!("{number:05}"))));
            lines.map(|line| line + "\n").collect::<String>()
        });
        let error = read_tles("f", numbered.collect::<String>().as_bytes()).unwrap_err();
        assert!(error.to_string().contains("20000 satellites"), "{error}");
    }

    #[test]
    fn debris_rockets_and_dead_satellites_are_told_by_their_names() {
        let named = |name: &str| {
            let text = ISS.replace("ISS (ZARYA)", name);
            read_tles("f", text.as_bytes()).unwrap()[0].is_in_service()
        };
        for name in [
            "STARLINK-1007",
            "IRIDIUM 106 [+]",
            "DEBUT (ORIZURU)",
            "25544",
        ] {
            assert!(named(name), "{name}");
        }
        for name in [
            "FALCON 9 DEB",
            "BREEZE-M DEB (TANK)",
            "SL-16 R/B",
            "DELTA 2 R/B(1)",
            "IRIDIUM 7 [-]",
        ] {
            assert!(!named(name), "{name}");
        }
    }

    #[test]
    fn errors_name_file_and_line() {
        let lines: Vec<&str> = ISS.lines().collect();
        let (one, two) = (lines[1], lines[2]);
        let wrong_sum = two.replace("236008", "236009");
        let no_sum = format!("{}X", &two[..68]);
        let wide = two.replace(" 51.6461", "951.6461");
        for (text, line, part) in [
            (format!("{one}\n{wrong_sum}\n"), 2, "checksum"),
            (format!("{one}\n{no_sum}\n"), 2, "checksum"),
            (format!("{one}\n{one}\n"), 2, "second line"),
            (format!("A\nB\n{one}\n{two}\n"), 2, "first line"),
            (format!("{one}\n{}\n", summed(&wide)), 2, "360 degrees"),
            (format!("{one}\n"), 1, "missing"),
            (format!("{ISS}NAME\n"), 4, "without elements"),
            ("x".repeat(300), 1, "longer"),
            ("\u{e9}\n".to_owned(), 1, "ASCII"),
        ] {
            let error = read_tles("sats.tle", text.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("sats.tle:{line}: ")), "{error}");
            assert!(error.contains(part), "{error} has no {part:?}");
        }
        assert!(
            read_tles("f", &b""[..])
                .unwrap_err()
                .to_string()
                .contains("no satellites")
        );
    }
}
