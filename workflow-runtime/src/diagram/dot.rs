//! A graph in the language of Graphviz.

use std::fmt::Write as _;

use super::graph::{Graph, Kind, State};

pub(super) fn write(name: &str, graph: &Graph) -> String {
    let mut out = format!("digraph \"{}\" {{\n", escaped(name));
    out.push_str("    node [fontname=\"sans-serif\"];\n");
    for (number, it) in graph.boxes.iter().enumerate() {
        let lines: Vec<_> = it.text.iter().map(|line| escaped(line)).collect();
        let shape = match it.kind {
            Kind::Terminal => "oval",
            Kind::Step => "box",
            Kind::Child => "box, peripheries=2",
            Kind::Wait => "box",
            Kind::Choice => "diamond",
            Kind::Loop => "hexagon",
            Kind::Bar => "parallelogram",
        };
        let label = lines.join("\\n");
        let look = look(it.kind, it.state);
        let _ = writeln!(
            out,
            "    n{number} [shape={shape}{look}, label=\"{label}\"];"
        );
    }
    for arrow in &graph.arrows {
        let (from, to) = (arrow.from, arrow.to);
        let _ = match &*arrow.label {
            "" => writeln!(out, "    n{from} -> n{to};"),
            label => writeln!(out, "    n{from} -> n{to} [label=\"{}\"];", escaped(label)),
        };
    }
    out.push_str("}\n");
    out
}

/// How a box looks, by what a run made of it.
fn look(kind: Kind, state: Option<State>) -> String {
    let rounded = kind == Kind::Wait;
    let (fill, line, dashed) = match state {
        None if rounded => return ", style=rounded".to_owned(),
        None => return String::new(),
        Some(State::Done) => ("#d7f0dd", "#2e7d4f", false),
        Some(State::Failed) => ("#f8d7da", "#a4262c", false),
        Some(State::Running) => ("#d6e6f9", "#1f5fa8", false),
        Some(State::Next) => ("#ffffff", "#1f5fa8", true),
        Some(State::NotReached) => ("#f3f3f3", "#9a9a9a", false),
    };
    let mut style = String::from("filled");
    if rounded {
        style.push_str(",rounded");
    }
    if dashed {
        style.push_str(",dashed");
    }
    format!(", style=\"{style}\", fillcolor=\"{fill}\", color=\"{line}\"")
}

/// A text that means itself between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
