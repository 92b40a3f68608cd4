//! How far a comparison has come, on standard error: a bar that moves on a terminal, a line per figure in a log.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// Characters of the bar.
const WIDTH: usize = 30;

/// Work that is counted.
pub struct Progress {
    total: usize,
    done: usize,
    began: Instant,
    is_terminal: bool,
}

impl Progress {
    /// Begins with so much to do.
    pub fn new(total: usize) -> Self {
        Self {
            total: total.max(1),
            done: 0,
            began: Instant::now(),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Says what is done now.
    pub fn begin(&mut self, what: &str) {
        let minutes = self.began.elapsed().as_secs() / 60;
        let line = format!("{} {minutes} min, {what}", bar(self.done, self.total));
        self.done = (self.done + 1).min(self.total);
        let mut out = std::io::stderr().lock();
        // Nobody listening is no reason to stop.
        let _ = match self.is_terminal {
            true => write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush()),
            false => writeln!(out, "{line}"),
        };
    }

    /// Leaves something out.
    pub fn skip(&mut self) {
        self.done = (self.done + 1).min(self.total);
    }

    /// Leaves the line.
    pub fn end(&self) {
        if self.is_terminal {
            eprintln!();
        }
    }
}

fn bar(done: usize, total: usize) -> String {
    let full = WIDTH * done / total;
    let (full, empty) = ("#".repeat(full), "-".repeat(WIDTH - full));
    format!("[{full}{empty}] {done}/{total}")
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_bar_fills_with_what_is_done() {
        assert_eq!(bar(0, 4), format!("[{}] 0/4", "-".repeat(30)));
        assert_eq!(bar(4, 4), format!("[{}] 4/4", "#".repeat(30)));
    }
}
