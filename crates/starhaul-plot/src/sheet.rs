//! One page or one picture of charts below each other: title, what was measured, legend, charts, and the command behind it.

use std::fmt::Write as _;

use maud::{PreEscaped, html};

use crate::{CHART_STYLE, card, escape, keys, made_by, page};

/// Width of a chart that fills a line of the sheet.
pub const LINE_WIDTH: f64 = 1120.0;
const GAP: f64 = 14.0;
/// Of lines of small text.
const LINE: f64 = 18.0;
/// Characters of small and of large text that fit into a line.
const SMALL_CHARACTERS: usize = 172;
const LARGE_CHARACTERS: usize = 116;

/// What stands on the sheet; all text is as people read it, not yet escaped.
#[derive(Clone, Debug, Default)]
pub struct Sheet<'a> {
    /// Headline of the sheet.
    pub title: &'a str,
    /// Below the title, each from a line of its own.
    pub sentences: Vec<String>,
    /// What a reader must not overlook.
    pub warning: Option<String>,
    /// Classes of colour, and what they stand for.
    pub marks: Vec<(&'static str, &'static str)>,
    /// Title, value, and what else there is to say; on the page only.
    pub figures: Vec<(String, String, String)>,
    /// Charts from top to bottom.
    pub panels: Vec<Panel>,
    /// The command line that makes it again.
    pub command: &'a str,
    /// JavaScript that moves what is drawn, without the network; on the page only.
    pub script: Option<&'a str>,
}

/// A chart over the whole width.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Opens a part of the sheet: a name, and what there is to say.
    pub heading: Option<(String, String)>,
    /// Of the chart; [`LINE_WIDTH`] is its width.
    pub height: f64,
    /// The chart as SVG, from [`crate::Chart::svg`].
    pub chart: String,
}

impl Sheet<'_> {
    /// One picture, light or dark as its viewer is.
    pub fn svg(&self) -> String {
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
        let (width, height) = (LINE_WIDTH + 2.0 * GAP, picture.y + GAP);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\">\n\
             <style>{CHART_STYLE}</style>\n<rect class=\"sheet\" width=\"{width}\" height=\"{height}\"/>{}</svg>\n",
            picture.body
        )
    }

    /// One page that needs no network.
    pub fn html(&self) -> String {
        let body = html! {
            h1 { (self.title) }
            @for sentence in &self.sentences {
                p { (sentence) }
            }
            @if let Some(warning) = &self.warning {
                p.warning { (warning) }
            }
            p { (keys(self.marks.iter().copied())) }
            div.cards {
                @for (title, value, below) in &self.figures {
                    (card("", title, value, &html! { p { (below) } }))
                }
            }
            @for panel in &self.panels {
                @if let Some((name, words)) = &panel.heading {
                    h2 { (name) }
                    p { (words) }
                }
                figure style="margin-top:14px" { (PreEscaped(&panel.chart)) }
            }
            footer { (made_by(self.command, None)) }
            @if let Some(script) = self.script {
                script { (PreEscaped(script)) }
            }
        };
        page(self.title, "", &body)
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
            "<rect class=\"panel\" x=\"{GAP}\" y=\"{y}\" width=\"{LINE_WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
             <svg x=\"{GAP}\" y=\"{y}\" width=\"{LINE_WIDTH}\" height=\"{height}\" {}",
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
