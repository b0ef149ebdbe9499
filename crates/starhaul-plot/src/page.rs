//! The frame of a page, and what stands on most of them.

use maud::{Markup, PreEscaped, html};

use crate::{CHART_STYLE, PAGE_STYLE};

/// One page that needs no network; `style` is CSS beside that of every page.
pub fn page(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(CHART_STYLE)) (PreEscaped(PAGE_STYLE)) (PreEscaped(style)) }
            }
            "\n"
            body { main { (body) } }
        }
        "\n"
    };
    page.into_string()
}

/// What the colours of a page stand for: class of colour and text.
pub fn keys<'a>(marks: impl IntoIterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        @for (class, words) in marks {
            span class={ "key " (class) } { i {} (words) }
        }
    }
}

/// One figure in large type, between its name and a remark.
pub fn card(class: &str, title: &str, value: &str, note: &Markup) -> Markup {
    html! {
        div class={ "card" @if !class.is_empty() { " " (class) } } { h3 { (title) } b { (value) } (note) }
    }
}

/// Charts beside each other, each from [`crate::Chart::svg`].
pub fn figures(charts: impl IntoIterator<Item = String>) -> Markup {
    html! {
        div.charts {
            @for chart in charts {
                figure { (PreEscaped(chart)) }
            }
        }
    }
}

/// The command that makes a page again.
pub fn made_by(command: &str, seed: Option<u64>) -> Markup {
    html! {
        p {
            "Made by " code { (command) }
            @if let Some(seed) = seed { ", seed " (seed) }
            ", Starhaul " (env!("CARGO_PKG_VERSION")) "."
        }
    }
}

/// A chart as a file of its own, with its style.
pub fn picture(svg: &str, style: &str) -> String {
    let inner = svg.trim_start_matches("<svg ");
    let Some((attributes, rest)) = inner.split_once('>') else {
        return svg.to_owned();
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\" {attributes}>\n<style>{CHART_STYLE}{style}</style>\
         <rect class=\"sheet\" width=\"100%\" height=\"100%\"/>{rest}\n"
    )
}
