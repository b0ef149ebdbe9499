//! What a declared experiment found, on the terminal, as a page and as files.

use maud::{PreEscaped, html};
use serde_json::Map;
use starhaul_plot::{Chart, Scale, Table, keys, made_by, page, picture};

use super::{Found, STYLE, experiment::to_json, repeats::failure};
use crate::Error;

const SIZE: (f64, f64) = (560.0, 300.0);
const COLOURS: [&str; 7] = ["s1", "s2", "s4", "s3", "s5", "s6", "s7"];
/// Once all colours are used, lines are dashed; in the page's style.
const DASHES: [&str; 4] = ["", " d1", " d2", " d3"];

/// Class and name of each line.
type Legend = Vec<(String, String)>;

/// The colour and the dashes of a line.
fn class(number: usize) -> String {
    let colour = COLOURS[number % COLOURS.len()];
    let dashes = DASHES[number / COLOURS.len() % DASHES.len()];
    format!("{colour}{dashes}")
}

/// One column over another, a line for each value of a third one.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Title of the plot.
    pub title: &'static str,
    /// Key of the column that goes to the right, and its name.
    pub x: (&'static str, &'static str),
    /// By its logarithm from this value on, with a place for 0; evenly without.
    pub log_from: Option<f64>,
    /// Key of the column that goes up, and its unit.
    pub y: (&'static str, &'static str),
    /// Keys of the columns that tell the lines apart.
    pub by: &'static [&'static str],
}

/// What something shows as a heading, with the figure of the paper if there is one.
pub(super) fn titled(shows: &str, stands_for: &str) -> String {
    let mut characters = shows.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    let title: String = first.chain(characters).collect();
    match stands_for {
        "" => title,
        stands_for => format!("{title} ({stands_for})"),
    }
}

/// All rows of a part.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) part: &'static str,
    pub(crate) stands_for: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) table: Table,
    pub(crate) plots: Vec<Plot>,
}

/// All parts of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) experiment: &'static str,
    pub(crate) title: &'static str,
    pub(crate) what: &'static str,
    pub(crate) command: String,
    pub(crate) seed: u64,
    /// What is left out, and why, one sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) has_parts: bool,
    pub(crate) rows: Vec<Rows>,
}

impl Rows {
    fn heading(&self) -> String {
        titled(self.shows, self.stands_for)
    }

    /// Each plot with its legend.
    fn charts(&self) -> Vec<(String, Legend)> {
        let summed = self.table.summed_up();
        self.plots.iter().map(|plot| plot.chart(&summed)).collect()
    }
}

impl Plot {
    fn chart(&self, table: &Table) -> (String, Legend) {
        let lines = table.split(self.by);
        let of_line = |(name, line): &(String, Table)| {
            let pairs = line
                .figures(self.x.0)
                .into_iter()
                .zip(line.figures(self.y.0));
            let points: Vec<(f64, f64)> = pairs.filter_map(|(x, y)| Some((x?, y?))).collect();
            (name.clone(), points)
        };
        let lines: Vec<(String, Vec<(f64, f64)>)> = lines.iter().map(of_line).collect();
        let points = || lines.iter().flat_map(|(_, points)| points);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let (right, top) = (
            most(&mut points().map(|(x, _)| *x)),
            most(&mut points().map(|(_, y)| *y)),
        );
        let x = match self.log_from {
            Some(from) => {
                let to = right.max(from * 10.0);
                match points().any(|(x, _)| *x <= 0.0) {
                    true => Scale::LogAndZero(from, to),
                    false => Scale::Log(from, to),
                }
            }
            None => Scale::up_to(right),
        };
        let mut chart = Chart::named(SIZE, self.title, self.y.1, self.x.1, x, Scale::up_to(top));
        let mut legend = Vec::new();
        for (number, (name, points)) in lines.iter().enumerate() {
            let class = &class(number);
            chart.line(class, points);
            for (x, y) in points {
                chart.point(class, (*x, *y), 3.0, &format!("{name}: {y:.2}"));
            }
            legend.push((class.clone(), name.clone()));
        }
        (chart.svg(self.title), legend)
    }
}

impl Results {
    /// What `results.json` holds.
    pub(crate) fn object(&self) -> Map<String, serde_json::Value> {
        let mut object = Map::new();
        object.insert("experiment".to_owned(), self.experiment.into());
        object.insert("command".to_owned(), self.command.as_str().into());
        object.insert("seed".to_owned(), self.seed.into());
        object.insert("skipped".to_owned(), self.notes.clone().into());
        for rows in &self.rows {
            let key = if self.has_parts { rows.part } else { "rows" };
            object.insert(key.to_owned(), rows.table.json());
        }
        object
    }
}

impl Found for Results {
    fn table(&self) -> String {
        let part = |rows: &Rows| format!("{}\n{}", rows.heading(), rows.table.summed_up().text());
        let mut text = self.rows.iter().map(part).collect::<Vec<_>>().join("\n");
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }

    fn failure(&self) -> Option<String> {
        failure(&self.notes)
    }

    fn json(&self) -> Result<String, Error> {
        to_json(&self.object())
    }

    fn files(&self) -> Vec<(String, String)> {
        let body = html! {
            h1 { (self.title) }
            p { (self.what) }
            @for rows in &self.rows {
                h2 #(rows.part) { (rows.heading()) }
                @if !rows.plots.is_empty() {
                    div."charts wide" {
                        @for (chart, legend) in rows.charts() {
                            figure {
                                (PreEscaped(chart))
                                figcaption { (keys(legend.iter().map(|(class, name)| (class.as_str(), name.as_str())))) }
                            }
                        }
                    }
                }
                (rows.table.summed_up().html())
            }
            @for note in &self.notes { p { (note) } }
            footer { (made_by(&self.command, Some(self.seed))) }
        };
        let title = format!("Starhaul lab: {}, seed {}", self.experiment, self.seed);
        let mut files = vec![("report.html".to_owned(), page(&title, STYLE, &body))];
        for rows in &self.rows {
            let name = if self.has_parts { rows.part } else { "results" };
            files.push((format!("{name}.csv"), rows.table.csv()));
            for ((chart, _), plot) in rows.charts().into_iter().zip(&rows.plots) {
                files.push((format!("{name}-{}.svg", plot.y.0), picture(&chart, STYLE)));
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use starhaul_plot::Column;

    use super::*;

    type Point = (String, f64, f64);

    fn chart(points: &[Point]) -> (String, Legend) {
        let columns = [
            Column::name("system", "system", |point: &Point| point.0.as_str().into()),
            Column::number("loss", "loss", "%", 2, |point: &Point| point.1.into()),
            Column::number("share", "share", "%", 0, |point: &Point| point.2.into()),
        ];
        let plot = Plot {
            title: "shares",
            x: ("loss", "loss, %"),
            log_from: Some(0.01),
            y: ("share", "%"),
            by: &["system"],
        };
        plot.chart(&Table::of(&columns, points))
    }

    #[test]
    fn each_of_many_lines_has_a_look_of_its_own_that_the_style_knows() {
        let points: Vec<Point> = (0..28)
            .map(|n| (format!("system {n}"), 1.0, 50.0))
            .collect();
        let (svg, legend) = chart(&points);
        let looks: BTreeSet<&str> = legend.iter().map(|(class, _)| class.as_str()).collect();
        assert_eq!(looks.len(), 28);
        for look in looks {
            assert!(svg.contains(&format!("class=\"line {look}\"")), "{look}");
            for class in look.split(' ') {
                assert!(STYLE.contains(&format!(".{class} ")), "{class}");
            }
        }
    }

    #[test]
    fn nothing_lost_is_not_drawn_where_little_is() {
        let point = |loss| ("one".to_owned(), loss, 50.0);
        let places = |points: &[Point]| -> BTreeSet<String> {
            let (svg, _) = chart(points);
            let places = svg.split("cx=\"").skip(1);
            places
                .filter_map(|at| Some(at.split_once('"')?.0.to_owned()))
                .collect()
        };
        assert_eq!(places(&[point(0.0), point(0.01), point(1.0)]).len(), 3);
    }
}
