//! Sizes as operators write them: a number and `B`, `kB`, `MB`, `GB`, `TB`, `KiB`, `MiB`, `GiB` or `TiB`.

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads `64MiB`, `200 MB`.
pub fn parse(text: &str) -> Result<u64, String> {
    let error = || {
        format!(
            "{text:?} is not a size: write a whole number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, for example 64MiB"
        )
    };
    let trimmed = text.trim();
    let unit = trimmed
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(error)?;
    let (number, unit) = trimmed.split_at(unit);
    let number: u64 = number.parse().map_err(|_| error())?;
    let known = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
    known
        .and_then(|(_, bytes)| number.checked_mul(*bytes))
        .ok_or_else(error)
}

/// Reads a size from `least` to `most` bytes.
pub fn between(least: u64, most: u64) -> impl Fn(&str) -> Result<usize, String> {
    move |text| {
        let bytes = parse(text)?;
        usize::try_from(bytes)
            .ok()
            .filter(|_| (least..=most).contains(&bytes))
            .ok_or_else(|| format!("{text} is outside of {} to {}", show(least), show(most)))
    }
}

/// In the unit with the least number of those that keep it whole.
pub fn show(bytes: u64) -> String {
    let whole = |(_, unit): &&(&str, u64)| bytes.is_multiple_of(*unit);
    let whole = UNITS.iter().filter(whole);
    let shortest = whole.min_by_key(|(_, unit)| bytes / unit);
    let (name, unit) = shortest.filter(|_| bytes > 0).unwrap_or(&("B", 1));
    format!("{} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_operators_write() {
        for (text, bytes, shown) in [
            ("64MiB", 64 << 20, "64 MiB"),
            ("200 MB", 200_000_000, "200 MB"),
            ("1GiB", 1 << 30, "1 GiB"),
            ("2TB", 2_000_000_000_000, "2 TB"),
            ("8192TiB", 1 << 53, "8192 TiB"),
            ("0B", 0, "0 B"),
            ("7B", 7, "7 B"),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
            assert_eq!(show(bytes), shown);
        }
        for text in [
            "",
            "64",
            "MiB",
            "1.5GiB",
            "64 mib",
            "-1B",
            "99999999999999GiB",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
