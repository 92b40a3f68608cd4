//! A graph as a Mermaid flowchart.

use std::fmt::Write as _;

use super::graph::{Graph, Kind};

pub(super) fn write(graph: &Graph) -> String {
    let mut out = String::from("flowchart TD\n");
    for (number, it) in graph.boxes.iter().enumerate() {
        let lines: Vec<_> = it.text.iter().map(|line| escaped(line)).collect();
        let (open, close) = match it.kind {
            Kind::Terminal => ("([", "])"),
            Kind::Step => ("[", "]"),
            Kind::Child => ("[[", "]]"),
            Kind::Wait => ("(", ")"),
            Kind::Choice => ("{", "}"),
            Kind::Loop => ("{{", "}}"),
            Kind::Bar => ("[/", "/]"),
        };
        let _ = writeln!(out, "    n{number}{open}\"{}\"{close}", lines.join("<br>"));
    }
    for arrow in &graph.arrows {
        let (from, to) = (arrow.from, arrow.to);
        let _ = match &*arrow.label {
            "" => writeln!(out, "    n{from} --> n{to}"),
            label => writeln!(out, "    n{from} -->|\"{}\"| n{to}", escaped(label)),
        };
    }
    out
}

/// A text that means itself between quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("#quot;"),
            '#' => out.push_str("#35;"),
            '<' => out.push_str("#lt;"),
            '>' => out.push_str("#gt;"),
            '&' => out.push_str("#amp;"),
            '`' => out.push_str("#96;"),
            c => out.push(c),
        }
    }
    out
}
