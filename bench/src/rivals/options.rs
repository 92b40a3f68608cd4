//! What a comparison was asked for on the command line.
//!
//! Owns the words and their defaults. Measures nothing.

use super::catalogue::Selection;
use super::sample::Pace;

/// How the words of `all` are.
pub const USAGE: &str =
    "usage: bench all [--only SYSTEM,…,WORKLOAD,…] [--repeats N] [--short] [--missing] [--fresh]";

/// Samples of a figure where nothing else is said.
const REPEATS: usize = 5;

/// A comparison, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub selection: Selection,
    pub repeats: usize,
    pub pace: Pace,
    /// Workloads that are in the results already are left out.
    pub only_missing: bool,
    /// Earlier results are removed first.
    pub is_fresh: bool,
}

impl Options {
    /// Reads the words after `all`.
    ///
    /// # Errors
    ///
    /// A word that is none, with how they are.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            selection: Selection::all(),
            repeats: REPEATS,
            pace: Pace::FULL,
            only_missing: false,
            is_fresh: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--only" => options.selection = Selection::only(words.next().ok_or(USAGE)?)?,
                "--repeats" => {
                    let number = words.next().and_then(|text| text.parse().ok());
                    options.repeats = number.filter(|number| *number > 0).ok_or(USAGE)?;
                }
                "--short" => options.pace = Pace::SHORT,
                "--missing" => options.only_missing = true,
                "--fresh" => options.is_fresh = true,
                other => return Err(format!("{other:?} is no word of this command\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_who_how_often_and_how_long() {
        let words = ["--only", "own,W2", "--repeats", "3", "--short", "--missing"];
        let options = Options::parse(&words).expect("they are words");
        assert_eq!((options.repeats, options.pace), (3, Pace::SHORT));
        assert_eq!(options.selection.contestants.len(), 2);
        assert!(options.only_missing && !options.is_fresh);
        let all = Options::parse(&[]).expect("everything is meant");
        assert_eq!((all.repeats, all.pace), (5, Pace::FULL));
        assert_eq!(all.selection, Selection::all());
    }

    #[test]
    fn a_word_that_is_none_is_refused_with_how_they_are() {
        for words in [&["--many"][..], &["--repeats", "0"], &["--only"]] {
            let refusal = Options::parse(words).expect_err("it is no word");
            assert!(refusal.contains("--missing"), "{refusal}");
        }
    }
}
