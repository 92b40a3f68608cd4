//! Which parts of an old body are which of a new one.

use super::model::Item;

/// Which items of one sequence are which of another: first those that are the same, then, between them, those with
/// the same head.
pub(super) fn pairs(was: &[&Item], now: &[&Item]) -> Vec<(usize, usize)> {
    let anchors = longest(was, now, |one, other| one.same(other));
    let mut all = Vec::new();
    let (mut i, mut j) = (0, 0);
    let ends = std::iter::once((was.len(), now.len()));
    for (to_i, to_j) in anchors.iter().copied().chain(ends) {
        let between = longest(&was[i..to_i], &now[j..to_j], |one, other| {
            one.what == other.what && !one.body.is_empty()
        });
        all.extend(between.into_iter().map(|(a, b)| (a + i, b + j)));
        if to_i < was.len() && to_j < now.len() {
            all.push((to_i, to_j));
        }
        (i, j) = (to_i + 1, to_j + 1);
    }
    all
}

/// The longest common subsequence, as pairs of places.
fn longest(
    was: &[&Item],
    now: &[&Item],
    equal: impl Fn(&Item, &Item) -> bool,
) -> Vec<(usize, usize)> {
    let mut length = vec![vec![0_usize; now.len() + 1]; was.len() + 1];
    for i in (0..was.len()).rev() {
        for j in (0..now.len()).rev() {
            length[i][j] = match equal(was[i], now[j]) {
                true => length[i + 1][j + 1] + 1,
                false => length[i + 1][j].max(length[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < was.len() && j < now.len() {
        if equal(was[i], now[j]) {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if length[i + 1][j] >= length[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    found
}
