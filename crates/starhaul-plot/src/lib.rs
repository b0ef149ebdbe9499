//! Charts, tables and pages from rows: text for terminals, HTML and SVG that need no network and follow light and dark, CSV, JSON.
//!
//! A table's columns are declared once, with what each shows of a row; every form of the table follows.
//!
//! ```
//! use starhaul_plot::{Column, Table};
//!
//! struct Run { system: &'static str, rate_mbps: f64, lost: f64 }
//!
//! let columns = [
//!     Column::name("system", "system", |run: &Run| run.system.into()),
//!     Column::number("rate_mbps", "rate", "Mbit/s", 1, |run: &Run| run.rate_mbps.into()).median(),
//!     Column::share("loss_rate", "lost", 2, |run: &Run| run.lost.into()).median(),
//! ];
//! let runs = [Run { system: "cubic", rate_mbps: 9.0, lost: 0.0 }, Run { system: "cubic", rate_mbps: 11.0, lost: 0.02 }];
//! let table = Table::of(&columns, &runs);
//! assert_eq!(table.csv(), "system,rate_mbps,loss_rate\ncubic,9,0\ncubic,11,0.02\n");
//! assert_eq!(table.summed_up().text(), "system  rate Mbit/s  lost %\ncubic          10.0    1.00\n");
//! ```

mod chart;
mod goals;
mod page;
mod sheet;
mod table;
mod tiles;

pub use chart::{Chart, HEIGHT, Scale, WIDTH};
pub use goals::{Bound, Goal};
pub use page::{card, figures, keys, made_by, page, picture};
pub use sheet::{LINE_WIDTH, Panel, Sheet};
pub use table::{Column, Table, Value};
pub use tiles::Tiles;

const CHART_STYLE: &str = include_str!("chart.css");
const PAGE_STYLE: &str = include_str!("page.css");

/// The text as HTML and SVG take it.
pub fn escape(text: &str) -> String {
    maud::html! { (text) }.into_string()
}
