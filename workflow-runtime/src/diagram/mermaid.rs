//! A graph as a Mermaid flowchart.

use std::fmt::Write as _;

use super::graph::{Graph, Kind, State};

/// How the boxes of a run look, by what the run made of them.
const CLASSES: [(State, &str, &str); 5] = [
    (
        State::Done,
        "done",
        "fill:#d7f0dd,stroke:#2e7d4f,color:#10331e",
    ),
    (
        State::Failed,
        "failed",
        "fill:#f8d7da,stroke:#a4262c,color:#4a1013",
    ),
    (
        State::Running,
        "running",
        "fill:#d6e6f9,stroke:#1f5fa8,color:#0d2c4f",
    ),
    (
        State::Next,
        "next",
        "fill:#ffffff,stroke:#1f5fa8,color:#0d2c4f,stroke-dasharray:4 3",
    ),
    (
        State::NotReached,
        "unreached",
        "fill:#f3f3f3,stroke:#9a9a9a,color:#6a6a6a",
    ),
];

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
    for (state, class, look) in CLASSES {
        let boxes = graph.boxes.iter().enumerate();
        let boxes = boxes.filter(|(_, it)| it.state == Some(state));
        let names: Vec<_> = boxes.map(|(number, _)| format!("n{number}")).collect();
        if !names.is_empty() {
            let _ = writeln!(out, "    classDef {class} {look}");
            let _ = writeln!(out, "    class {} {class}", names.join(","));
        }
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
