//! One page or one picture of charts below each other: title, what was measured, legend, charts, and the command behind it.

use std::fmt::Write as _;

use super::{CHART_STYLE, PAGE_STYLE, escape};

/// Width of a chart that fills a line of the sheet.
pub(super) const WIDTH: f64 = 1120.0;
const GAP: f64 = 14.0;
/// Of lines of small text.
const LINE: f64 = 18.0;
/// Characters of small and of large text that fit into a line.
const SMALL_CHARACTERS: usize = 172;
const LARGE_CHARACTERS: usize = 116;

/// What stands on the sheet; all text is as people read it, not yet escaped.
#[derive(Debug, Default)]
pub(super) struct Sheet<'a> {
    pub(super) title: &'a str,
    /// Below the title, each from a line of its own.
    pub(super) sentences: Vec<String>,
    /// What nobody may overlook.
    pub(super) warning: Option<String>,
    /// Classes of colour, and what they stand for.
    pub(super) marks: Vec<(&'static str, &'static str)>,
    /// Title, value, and what else there is to say; on the page only.
    pub(super) figures: Vec<(String, String, String)>,
    pub(super) panels: Vec<Panel>,
    pub(super) command: &'a str,
}

/// A chart over the whole width.
#[derive(Debug)]
pub(super) struct Panel {
    /// Opens a part of the sheet: a name, and what there is to say.
    pub(super) heading: Option<(String, String)>,
    pub(super) height: f64,
    /// From [`super::chart::Chart::svg`].
    pub(super) chart: String,
}

impl Sheet<'_> {
    /// One picture, light or dark as its viewer is.
    pub(super) fn svg(&self) -> String {
        let mut picture = Picture::default();
        picture.text("headline", 26.0, self.title, LARGE_CHARACTERS);
        for sentence in &self.sentences {
            picture.text("caption", LINE, sentence, SMALL_CHARACTERS);
        }
        if let Some(warning) = &self.warning {
            picture.text("caption warning", LINE, warning, SMALL_CHARACTERS);
        }
        picture.legend(&self.marks);
        for panel in &self.panels {
            if let Some((name, words)) = &panel.heading {
                picture.y += GAP / 2.0;
                picture.text("title", LINE, name, SMALL_CHARACTERS);
                picture.text("caption", LINE, words, SMALL_CHARACTERS);
                picture.y += GAP / 2.0;
            }
            picture.panel(panel);
        }
        picture.text("caption", LINE, self.command, SMALL_CHARACTERS);
        let (width, height) = (WIDTH + 2.0 * GAP, picture.y + GAP);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\">\n\
             <style>{CHART_STYLE}</style>\n<rect class=\"sheet\" width=\"{width}\" height=\"{height}\"/>{}</svg>\n",
            picture.body
        )
    }

    /// One page that needs no network.
    pub(super) fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>", escape(self.title));
        for sentence in &self.sentences {
            let _ = write!(body, "<p>{}</p>", escape(sentence));
        }
        if let Some(warning) = &self.warning {
            let _ = write!(body, "<p class=\"warning\">{}</p>", escape(warning));
        }
        body.push_str("<p>");
        for (class, words) in &self.marks {
            let _ = write!(body, "<span class=\"key {class}\"><i></i>{words}</span>");
        }
        body.push_str("</p><div class=\"cards\">");
        for (title, value, below) in &self.figures {
            let [title, value, below] = [title, value, below].map(|text| escape(text));
            let _ = write!(
                body,
                "<div class=\"card\"><h3>{title}</h3><b>{value}</b><p>{below}</p></div>"
            );
        }
        body.push_str("</div>");
        for panel in &self.panels {
            if let Some((name, words)) = &panel.heading {
                let _ = write!(body, "<h2>{}</h2><p>{}</p>", escape(name), escape(words));
            }
            let _ = write!(
                body,
                "<figure style=\"margin-top:14px\">{}</figure>",
                panel.chart
            );
        }
        let _ = write!(
            body,
            "<footer><p>Made by <code>{}</code>, Starhaul {}.</p></footer>",
            escape(self.command),
            env!("CARGO_PKG_VERSION")
        );
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{}</title><style>{CHART_STYLE}{PAGE_STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
            escape(self.title)
        )
    }
}

/// A picture as far as it is drawn, from the top.
#[derive(Default)]
struct Picture {
    body: String,
    y: f64,
}

impl Picture {
    fn text(&mut self, class: &str, line: f64, text: &str, characters: usize) {
        for part in wrapped(text, characters) {
            self.y += line;
            // Writing to a string cannot fail.
            let _ = write!(
                self.body,
                "<text class=\"{class}\" x=\"{GAP}\" y=\"{}\">{}</text>",
                self.y,
                escape(&part)
            );
        }
    }

    fn legend(&mut self, marks: &[(&str, &str)]) {
        if !marks.is_empty() {
            self.y += LINE + 2.0;
        }
        let mut x = GAP;
        for (class, words) in marks {
            let _ = write!(
                self.body,
                "<g class=\"{class}\"><rect class=\"swatch\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"5\" rx=\"2\"/></g>\
                 <text class=\"caption\" x=\"{}\" y=\"{}\">{words}</text>",
                self.y - 7.0,
                x + 20.0,
                self.y
            );
            let characters = u32::try_from(words.chars().count()).unwrap_or(0);
            x += 46.0 + 6.4 * f64::from(characters);
        }
        self.y += GAP;
    }

    fn panel(&mut self, panel: &Panel) {
        let (y, height) = (self.y, panel.height);
        let _ = write!(
            self.body,
            "<rect class=\"panel\" x=\"{GAP}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
             <svg x=\"{GAP}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" {}",
            panel.chart.trim_start_matches("<svg ")
        );
        self.y += height + GAP;
    }
}

/// The text in lines, broken at spaces and after commas, or anywhere in what is longer than a line.
fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_inclusive([' ', ',', '/']) {
        let word_length = word.chars().count();
        if length + word_length > characters && length > 0 {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        for character in word.chars() {
            if length == characters {
                lines.push(std::mem::take(&mut line));
                length = 0;
            }
            line.push(character);
            length += 1;
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_without_losing_any_of_it() {
        let text = "starhaul replay --up bw=bw.txt,delay=a-name-that-is-longer-than-a-line -- true";
        let lines = wrapped(text, 20);
        assert!(lines.iter().all(|line| line.chars().count() <= 20));
        assert_eq!(lines.concat(), text);
        assert_eq!(lines[0], "starhaul replay ");
        assert!(wrapped("", 20).is_empty());
    }
}
