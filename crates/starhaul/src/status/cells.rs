//! How values are written on a terminal: numbers, ages and names that fit a column, and the style of tables.

use comfy_table::{CellAlignment, Table, presets};
use starhaul_gateway::MAX_COST;

/// The width of the narrowest terminal.
pub(super) const WIDTH: usize = 80;

/// Separates a number and its prefix, before a unit.
pub(super) fn spaced(number: String) -> String {
    let at = number.trim_end_matches(char::is_alphabetic).len();
    let (digits, prefix) = number.split_at(at);
    format!("{digits} {prefix}")
}

pub(super) fn show(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

/// A price per byte; that of a path which its quota made the dearest is `max`.
pub(crate) fn cost(cost: f64) -> String {
    match cost >= MAX_COST {
        true => "max".to_owned(),
        false => cost.to_string(),
    }
}

/// A table with text in the first `texts` columns and numbers in the others.
pub(super) fn table(columns: &[&str], texts: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(columns.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((1, 0));
        if index >= texts {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A name, cut at its end to fit a column.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_owned(),
        false => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// A text, cut at its beginning, for texts that differ at the end.
pub(super) fn cut_front(text: &str, most: usize) -> String {
    let count = text.chars().count();
    match count <= most {
        true => text.to_owned(),
        false => std::iter::once('…')
            .chain(text.chars().skip(count + 1 - most))
            .collect(),
    }
}

/// A sentence below a table, wrapped.
pub(super) fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() >= WIDTH {
            lines.push_str(&format!("{line}\n"));
            line = " ".to_owned();
        }
        line.push_str(&format!(" {word}"));
    }
    format!("{lines}{line}\n")
}

pub(super) fn rate(bits: Option<u64>) -> String {
    bits.map_or_else(|| "–".to_owned(), compact)
}

/// A number in at most five characters: three digits and a prefix.
#[expect(clippy::cast_precision_loss, reason = "a display value")]
pub(super) fn compact(number: u64) -> String {
    let mut value = number as f64;
    if number < 1000 {
        return number.to_string();
    }
    let mut prefix = ' ';
    for next in ['k', 'M', 'G', 'T', 'P', 'E'] {
        if value < 999.5 {
            break;
        }
        value /= 1e3;
        prefix = next;
    }
    let digits = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{prefix}")
}

/// A tenth matters, as reconfigurations are seconds apart.
pub(super) fn short_age(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.1} s"),
        _ => age(seconds),
    }
}

pub(super) fn age(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.0} s"),
        ..3600.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_have_five_characters() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.00k"),
            (12_345, "12.3k"),
            (999_400, "999k"),
            (999_600, "1.00M"),
            (157_100_000, "157M"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(compact(number), text);
        }
        for power in 0..64 {
            assert!(compact(1 << power).chars().count() <= 5);
        }
    }
}
