//! Puts all mutants of a file into it at once, each behind a switch.
//!
//! Owns the text of the mutated copy: what was there stays, as the branch of an `if` that is taken unless the mutant is
//! on. A mutant's own branch has the untouched text, so that no two mutants are in one another. It never decides
//! which mutants there are, nor whether the result compiles.

use std::collections::HashMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::list::Mutant;

/// A file with its mutants in it.
pub(crate) struct Planted {
    pub(crate) text: String,
    /// Which bytes of the text are there for which mutant.
    pub(crate) ranges: Vec<(u32, Range<usize>)>,
}

/// Puts text around a part of the file.
struct Wrap {
    part: Range<usize>,
    before: Vec<(u32, String)>,
    after: String,
}

struct Planter<'a> {
    source: &'a str,
    wanted: HashMap<(&'a str, usize), Vec<&'a Mutant>>,
    lines: Vec<usize>,
    wraps: Vec<Wrap>,
}

/// Puts the mutants into the source of their file.
pub(crate) fn plant(source: &str, mutants: &[&Mutant]) -> Result<Planted, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let lines = std::iter::once(0)
        .chain(source.match_indices('\n').map(|(at, _)| at + 1))
        .collect();
    let mut planter = Planter {
        source,
        wanted: HashMap::new(),
        lines,
        wraps: Vec::new(),
    };
    for mutant in mutants {
        let start = planter.offset(mutant.start);
        planter
            .wanted
            .entry((&mutant.genre, start))
            .or_default()
            .push(mutant);
    }
    planter.visit_file(&file);
    Ok(planter.write())
}

fn on(id: u32) -> String {
    format!("crate::mutated::on({id})")
}

impl<'a> Planter<'a> {
    fn offset(&self, (line, column): (usize, usize)) -> usize {
        let start = self.lines[line - 1];
        let line = &self.source[start..];
        start
            + line
                .char_indices()
                .nth(column - 1)
                .map_or(line.len(), |(at, _)| at)
    }

    fn take(&mut self, genre: &'static str, start: usize) -> Vec<&'a Mutant> {
        self.wanted.remove(&(genre, start)).unwrap_or_default()
    }

    /// One of several branches, each for a mutant, and what was there in the last.
    fn branches(
        &mut self,
        part: Range<usize>,
        mutants: &[&Mutant],
        text: impl Fn(&Mutant) -> String,
    ) {
        if mutants.is_empty() {
            return;
        }
        let mut before: Vec<_> = mutants
            .iter()
            .map(|mutant| {
                (
                    mutant.id,
                    format!("if {} {{ {} }} else ", on(mutant.id), text(mutant)),
                )
            })
            .collect();
        before[0].1.insert(0, '(');
        before.push((0, "{ ".into()));
        self.wraps.push(Wrap {
            part,
            before,
            after: " })".into(),
        });
    }

    fn body(&mut self, block: &syn::Block) {
        let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) else {
            return;
        };
        let part = first.span().byte_range().start..last.span().byte_range().end;
        let mutants = self.take("FnValue", part.start);
        let before = mutants
            .iter()
            .map(|mutant| {
                (
                    mutant.id,
                    format!("if {} {{ return {}; }} ", on(mutant.id), mutant.replacement),
                )
            })
            .collect();
        self.wraps.push(Wrap {
            part,
            before,
            after: String::new(),
        });
    }

    /// The text of an expression with the mutant's part of it replaced.
    fn replaced(&self, part: &Range<usize>, mutant: &Mutant) -> String {
        let (start, end) = (self.offset(mutant.start), self.offset(mutant.end));
        let source = self.source;
        format!(
            "{} {} {}",
            &source[part.start..start],
            mutant.replacement,
            &source[end..part.end]
        )
    }

    fn write(mut self) -> Planted {
        // At one place: what ends there, the inner before the outer; then what begins, the outer before the inner.
        self.wraps
            .sort_by_key(|wrap| (wrap.part.start, usize::MAX - wrap.part.end));
        let mut ends: Vec<usize> = (0..self.wraps.len()).collect();
        ends.sort_by_key(|&index| (self.wraps[index].part.end, usize::MAX - index));
        let (mut text, mut ranges, mut done) = (String::new(), Vec::new(), 0);
        let (mut begins, mut ends) = (self.wraps.iter().peekable(), ends.into_iter().peekable());
        loop {
            let begin = begins.peek().map(|wrap| wrap.part.start);
            let end = ends.peek().map(|&index| self.wraps[index].part.end);
            let (at, ending) = match (begin, end) {
                (Some(begin), Some(end)) if end <= begin && !self.empty_at(ends.peek(), begin) => {
                    (end, true)
                }
                (Some(begin), _) => (begin, false),
                (None, Some(end)) => (end, true),
                (None, None) => break,
            };
            text.push_str(&self.source[done..at]);
            done = at;
            if ending {
                text.push_str(&self.wraps[ends.next().expect("peeked")].after);
                continue;
            }
            for (id, piece) in &begins.next().expect("peeked").before {
                ranges.push((*id, text.len()..text.len() + piece.len()));
                text.push_str(piece);
            }
        }
        text.push_str(&self.source[done..]);
        Planted { text, ranges }
    }

    /// Whether what ends next is an insertion that has not begun.
    fn empty_at(&self, next: Option<&usize>, begin: usize) -> bool {
        next.is_some_and(|&index| self.wraps[index].part == (begin..begin))
    }
}

/// Whether an expression is a chain with a `let` in it, which can stand in a condition only.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Planter<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let part = binary.span().byte_range();
            let mutants = self.take("BinaryOperator", binary.op.span().byte_range().start);
            let texts: HashMap<u32, String> = mutants
                .iter()
                .map(|mutant| (mutant.id, self.replaced(&part, mutant)))
                .collect();
            self.branches(part, &mutants, |mutant| texts[&mutant.id].clone());
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let part = unary.span().byte_range();
        let operand = unary.expr.span().byte_range();
        let mutants = self.take("UnaryOperator", part.start);
        let operand = self.source[operand].to_owned();
        self.branches(part, &mutants, |_| operand.clone());
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, made: &'ast syn::ExprStruct) {
        let part = made.span().byte_range();
        let mut mutants = Vec::new();
        for field in &made.fields {
            mutants.extend(self.take("StructField", field.span().byte_range().start));
        }
        let texts: HashMap<u32, String> = mutants
            .iter()
            .map(|mutant| (mutant.id, self.replaced(&part, mutant)))
            .collect();
        self.branches(part, &mutants, |mutant| texts[&mutant.id].clone());
        visit::visit_expr_struct(self, made);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        // Without an arm that takes everything a deleted one leaves a hole, whatever its guard says.
        let catches = |arm: &syn::Arm| matches!(arm.pat, syn::Pat::Wild(_));
        if !expression.arms.iter().any(catches) {
            for arm in &expression.arms {
                self.take("MatchArm", arm.span().byte_range().start);
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let syn::Pat::Guard(syn::PatGuard { guard, .. }) = &arm.pat {
            let part = guard.span().byte_range();
            if !has_let(guard) {
                let mutants = self.take("MatchArmGuard", part.start);
                let mut before: Vec<_> = mutants
                    .iter()
                    .map(|mutant| match mutant.replacement.as_str() {
                        "true" => (mutant.id, format!("{} || ", on(mutant.id))),
                        _ => (mutant.id, format!("!{} && ", on(mutant.id))),
                    })
                    .collect();
                before.push((0, "(".into()));
                self.wraps.push(Wrap {
                    part,
                    before,
                    after: ")".into(),
                });
            }
        } else {
            let end = arm.pat.span().byte_range().end;
            for mutant in self.take("MatchArm", arm.span().byte_range().start) {
                let before = vec![(mutant.id, format!(" if !{} ", on(mutant.id)))];
                self.wraps.push(Wrap {
                    part: end..end,
                    before,
                    after: String::new(),
                });
            }
        }
        visit::visit_arm(self, arm);
    }
}
