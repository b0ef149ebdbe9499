//! The table for a terminal, a page, a spreadsheet and a program.

use comfy_table::{CellAlignment, Table as Terminal, presets};
use maud::{Markup, html};
use serde_json::{Map, Value as Json};

use super::{Table, Value, column::Sum};

impl Table {
    /// For a terminal, each line with its end.
    pub fn text(&self) -> String {
        let mut terminal = Terminal::new();
        terminal
            .load_style(presets::NOTHING)
            .set_header(self.heads.iter().map(|head| head.brief_title()));
        for row in self.shown() {
            terminal.add_row(row);
        }
        for (number, (column, head)) in terminal.column_iter_mut().zip(&self.heads).enumerate() {
            column.set_padding((if number == 0 { 0 } else { 2 }, 0));
            if !head.is_words() {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = terminal
            .lines()
            .map(|line| line.trim_end().to_owned() + "\n");
        lines.collect()
    }

    /// The table as HTML, for a page.
    pub fn html(&self) -> Markup {
        let rows = self.shown();
        html! {
            div.table {
                table {
                    thead { tr { @for head in &self.heads { th class=[head.is_words().then_some("words")] { (head.title()) } } } }
                    tbody {
                        @for (at, row) in rows.iter().enumerate() {
                            tr class=[self.begins_group(at).then_some("first")] {
                                @for (number, text) in row.iter().enumerate() {
                                    td class=[self.class(at, number)] { (text) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// For spreadsheets (RFC 4180), with the columns' keys in the first line.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let keys = self.heads.iter().map(|head| head.key);
        let mut written = writer.write_record(keys);
        for row in &self.rows {
            let cells = self.heads.iter().zip(row);
            let cells = cells.map(|(head, value)| head.written(value));
            written = written.and(writer.write_record(cells));
        }
        debug_assert!(written.is_ok(), "rows are as long as their heads");
        let bytes = writer.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// For programs: an array of objects with the columns' keys, figures as they were measured. Each object has the columns by which rows are
    /// told apart also as `params`, and those that are summed up also as `metrics`.
    pub fn json(&self) -> Json {
        let json = |value: &Value| match value {
            Value::Text(text) | Value::Verdict(text, _) => text.as_str().into(),
            Value::Number(number) => (*number).into(),
            // No number, which would pass for a measured one, and not null, which would pass for nothing to tell.
            Value::Above(number) => format!(">{number}").into(),
            Value::Count(count) => (*count).into(),
            Value::Flag(flag) => (*flag).into(),
            Value::Nothing => Json::Null,
        };
        let object = |row: &Vec<Value>| {
            let (mut object, mut params, mut metrics) = (Map::new(), Map::new(), Map::new());
            for (head, value) in self.heads.iter().zip(row) {
                let (key, value) = (head.key.to_owned(), json(value));
                let kind = match head.sum {
                    Sum::Same => Some(&mut params),
                    Sum::Dropped => None,
                    _ => Some(&mut metrics),
                };
                if let Some(kind) = kind {
                    kind.insert(key.clone(), value.clone());
                }
                object.insert(key, value);
            }
            object.insert("params".to_owned(), Json::Object(params));
            object.insert("metrics".to_owned(), Json::Object(metrics));
            Json::Object(object)
        };
        self.rows.iter().map(object).collect()
    }

    /// The cells as people read them.
    fn shown(&self) -> Vec<Vec<String>> {
        let row = |(at, row): (usize, &Vec<Value>)| {
            let cells = self.heads.iter().zip(row);
            let mut cells: Vec<String> = cells.map(|(head, value)| head.shown(value)).collect();
            if self.grouped && !self.begins_group(at) {
                cells[0].clear();
            }
            cells
        };
        self.rows.iter().enumerate().map(row).collect()
    }

    /// Whether the row is the first with its first value.
    fn begins_group(&self, at: usize) -> bool {
        let first = |at: usize| self.rows.get(at).and_then(|row| row.first());
        self.grouped && (at == 0 || first(at - 1) != first(at))
    }

    fn class(&self, at: usize, number: usize) -> Option<String> {
        let (head, value) = (self.heads.get(number)?, self.rows.get(at)?.get(number)?);
        let colour = |(key, classes): &(&str, Vec<&str>)| {
            let class = classes.get(at).copied().unwrap_or_default();
            (head.key == *key).then(|| format!("name {class}"))
        };
        let verdict = match value {
            Value::Verdict(_, good) => Some(if *good { "yes" } else { "no" }.to_owned()),
            _ => None,
        };
        let words = head.is_words().then(|| "words".to_owned());
        let classes = [words, self.colours.as_ref().and_then(colour), verdict];
        let classes: Vec<String> = classes.into_iter().flatten().collect();
        (!classes.is_empty()).then(|| classes.join(" "))
    }
}
