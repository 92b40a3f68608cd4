//! What `battery soak` is asked for.

use std::path::PathBuf;
use std::time::Duration;

use super::RATE;
use super::orders::Leak;

/// How to ask.
pub(super) const USAGE: &str =
    "battery soak [--minutes N] [--rate N] [--seed N] [--samples FILE] [--plot FILE] [--leak KIND]
  --minutes N     how long; 30 otherwise. Looks at a large store come on top. Below one minute nothing is said of
                  flatness; in a few minutes what only warms up is not flat either
  --rate N        orders a second at most; 200 otherwise. 0: as many as it can
  --seed N        other moments for kills and stops
  --samples FILE  where JSON lines of samples go; soak.jsonl otherwise
  --plot FILE     where the plot goes; soak.svg otherwise
  --leak KIND     memory, descriptors or disk is not given back, on purpose: it must be noticed
The exit code is 1 if anything was violated, is not flat, or if too little was sampled to say so.";

/// What is asked for.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) length: Duration,
    pub(super) rate: u32,
    pub(super) seed: u64,
    pub(super) samples: PathBuf,
    pub(super) plot: PathBuf,
    pub(super) leak: Leak,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            length: Duration::from_secs(30 * 60),
            rate: RATE,
            seed: 0,
            samples: "soak.jsonl".into(),
            plot: "soak.svg".into(),
            leak: Leak::Nothing,
        }
    }
}

impl Asked {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// Says what is wrong with them.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let wrong = |what: &str| format!("{word} {value}: {what}");
            match &**word {
                "--minutes" => {
                    let minutes = value.parse::<f64>().ok().filter(|minutes| *minutes > 0.0);
                    let seconds = minutes.ok_or(wrong("not a positive number"))? * 60.0;
                    let length = Duration::try_from_secs_f64(seconds);
                    asked.length = length.map_err(|_| wrong("too long"))?;
                }
                "--rate" => asked.rate = value.parse().map_err(|_| wrong("not a number"))?,
                "--seed" => asked.seed = value.parse().map_err(|_| wrong("not a number"))?,
                "--samples" => asked.samples = value.into(),
                "--plot" => asked.plot = value.into(),
                "--leak" => {
                    let leak = Leak::named(value);
                    asked.leak = leak.ok_or(wrong("not memory, descriptors or disk"))?;
                }
                _ => return Err(format!("{word}: no such option")),
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Asked, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Asked::parse(&words)
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let asked = parse("--minutes 0.5 --seed 7 --leak disk --plot a.svg").expect("reads");
        assert_eq!(asked.length, Duration::from_secs(30));
        assert_eq!((asked.seed, asked.leak), (7, Leak::Disk));
        for (words, problem) in [
            ("--minutes x", "--minutes x: not a positive number"),
            ("--minutes -1", "--minutes -1: not a positive number"),
            ("--minutes 1e300", "--minutes 1e300: too long"),
            ("--minutes", "--minutes needs a value"),
            (
                "--leak water",
                "--leak water: not memory, descriptors or disk",
            ),
            ("--fast 1", "--fast: no such option"),
        ] {
            assert_eq!(parse(words), Err(problem.into()));
        }
    }
}
