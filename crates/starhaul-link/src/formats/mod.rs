//! Readers and writers of recorded links: mahimahi and LeoReplayer files (LeoCC §5.2), CSV tables, and LeoEM's path
//! logs. Readers are strict: a bad line is an error with file, line and reason. They read line by line, also out of
//! gzip.

mod csv;
mod delay;
mod leoem;
mod lines;
mod mahimahi;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
    str::FromStr,
    sync::Arc,
};

use flate2::bufread::MultiGzDecoder;
use lines::BYTE_ORDER_MARK;
use starhaul_units::parse_number;

pub use csv::{parse_csv, write_csv};
pub use delay::{parse_delay, write_delay};
pub use leoem::parse_leoem;
pub use mahimahi::{parse_capacity, write_capacity};

use crate::{
    Error, Recording, Trace,
    text::{self, setting},
};

/// The format of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Capacity of mahimahi or LeoReplayer, see [`parse_capacity`].
    Mahimahi,
    /// Delays of LeoReplayer, see [`parse_delay`].
    Delay,
    /// A table, see [`parse_csv`].
    Csv,
    /// A path log of LeoEM, see [`parse_leoem`].
    Leoem,
}

impl Format {
    /// All formats with their names.
    pub const ALL: [(&str, Self); 4] = [
        ("mahimahi", Self::Mahimahi),
        ("delay", Self::Delay),
        ("csv", Self::Csv),
        ("leoem", Self::Leoem),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, format)| *format == self);
        named.map_or("", |(name, _)| name)
    }

    /// Detects the format of a file from the beginning of its (unpacked) content: `$` is LeoEM's, a comma a table's.
    /// Numbers that never decrease are a capacity, unless one has a fraction or the file's name contains `delay` or the word
    /// `owd`; all other numbers are delays.
    pub fn detect(file: &Path, beginning: &[u8]) -> Self {
        let beginning = beginning.strip_prefix(BYTE_ORDER_MARK).unwrap_or(beginning);
        let text = String::from_utf8_lossy(beginning);
        let first = text.lines().next().unwrap_or_default();
        if first.contains('$') {
            return Self::Leoem;
        }
        if first.contains(',') {
            return Self::Csv;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut words = name.split(|letter: char| !letter.is_ascii_alphabetic());
        if name.contains("delay") || words.any(|word| word == "owd") {
            return Self::Delay;
        }
        // The last line may be cut.
        let whole = text.rsplit_once('\n').map_or(&*text, |(whole, _)| whole);
        let mut last = 0;
        for line in whole.lines() {
            match line.trim().parse::<u64>() {
                Ok(stamp) if stamp >= last => last = stamp,
                Ok(_) => return Self::Delay,
                // A fraction; the reader reports an invalid number with its line.
                Err(_) if parse_number(line.trim()).is_some() => return Self::Delay,
                Err(_) => break,
            }
        }
        Self::Mahimahi
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, format)| *format).ok_or_else(|| {
            let all = "the formats are mahimahi, delay, csv and leoem";
            let reason = match text::nearest(text, &Self::ALL.map(|(name, _)| name)) {
                Some(name) => format!("did you mean {name:?}? {all}"),
                None => all.to_owned(),
            };
            setting("format", text, reason)
        })
    }
}

impl Trace {
    /// Reads a LeoReplayer pair, or without a `delay` file a mahimahi trace alone.
    pub fn read(capacity: &Path, delay: Option<&Path>) -> Result<Self, Error> {
        let capacity = parse_capacity(&capacity.to_string_lossy(), open(capacity)?)?;
        let delay = delay.map(read_delay).transpose()?.unwrap_or_default();
        let trace = Self::new(capacity, delay.delay.map(Arc::unwrap_or_clone))?;
        Ok(match delay.loss {
            Some(loss) => trace.with_loss(Arc::unwrap_or_clone(loss)),
            None => trace,
        })
    }

    /// Reads a CSV table; see [`parse_csv`].
    pub fn read_csv(file: &Path) -> Result<Self, Error> {
        parse_csv(&file.to_string_lossy(), open(file)?)
    }
}

impl Recording {
    /// Reads one file, in the given format or else the detected one; returns the format, too.
    pub fn read(file: &Path, format: Option<Format>) -> Result<(Self, Format), Error> {
        let name = file.to_string_lossy();
        let mut input = open(file)?;
        let beginning = input.fill_buf().map_err(|e| read_error(&name, &e))?;
        if format.is_none() {
            refuse_json(&name, beginning)?;
        }
        let format = format.unwrap_or_else(|| Format::detect(file, beginning));
        let recording = match format {
            Format::Mahimahi => Self::default().with_capacity(parse_capacity(&name, input)?)?,
            Format::Delay => Self::of_delay(parse_delay(&name, input)?),
            Format::Csv => parse_csv(&name, input)?.into(),
            Format::Leoem => parse_leoem(&name, input)?,
        };
        Ok((recording, format))
    }
}

/// Reads delays of LeoReplayer or LeoEM.
pub(crate) fn read_delay(file: &Path) -> Result<Recording, Error> {
    let name = file.to_string_lossy();
    let mut input = open(file)?;
    let beginning = input.fill_buf().map_err(|e| read_error(&name, &e))?;
    refuse_json(&name, beginning)?;
    match Format::detect(file, beginning) {
        Format::Leoem => parse_leoem(&name, input),
        _ => Ok(Recording::of_delay(parse_delay(&name, input)?)),
    }
}

/// Says of a path over time that is written as JSON what is read in its place: it would be a line that is too long.
fn refuse_json(file: &str, beginning: &[u8]) -> Result<(), Error> {
    let beginning = beginning.strip_prefix(BYTE_ORDER_MARK).unwrap_or(beginning);
    match beginning.trim_ascii_start().first() {
        Some(b'{' | b'[') => Err(Error::Trace {
            file: file.to_owned(),
            reason: "is JSON, and no trace: write a path of `starhaul orbit paths` as .csv with --rate, or its delays as .log or .txt".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Opens a file, unpacking gzip.
fn open(file: &Path) -> Result<Box<dyn BufRead>, Error> {
    let opened = || {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, File::open(file)?);
        let packed = input.fill_buf()?.starts_with(&GZIP_MAGIC);
        let input: Box<dyn BufRead> = match packed {
            true => Box::new(BufReader::with_capacity(
                BUFFER_BYTES,
                MultiGzDecoder::new(input),
            )),
            false => Box::new(input),
        };
        Ok(input)
    };
    opened().map_err(|error: io::Error| read_error(&file.to_string_lossy(), &error))
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Size of the buffer, which also is the beginning used for detection.
const BUFFER_BYTES: usize = 1 << 16;

fn read_error(file: &str, error: &io::Error) -> Error {
    Error::Read {
        file: file.to_owned(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
