//! A graph in the language of Graphviz.

use std::fmt::Write as _;

use super::graph::{Graph, Kind};

pub(super) fn write(name: &str, graph: &Graph) -> String {
    let mut out = format!("digraph \"{}\" {{\n", escaped(name));
    out.push_str("    node [fontname=\"sans-serif\"];\n");
    for (number, it) in graph.boxes.iter().enumerate() {
        let lines: Vec<_> = it.text.iter().map(|line| escaped(line)).collect();
        let shape = match it.kind {
            Kind::Terminal => "oval",
            Kind::Step => "box",
            Kind::Child => "box, peripheries=2",
            Kind::Wait => "box, style=rounded",
            Kind::Choice => "diamond",
            Kind::Loop => "hexagon",
            Kind::Bar => "parallelogram",
        };
        let label = lines.join("\\n");
        let _ = writeln!(out, "    n{number} [shape={shape}, label=\"{label}\"];");
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

/// A text that means itself between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
