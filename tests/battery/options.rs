//! What the battery is asked for.

use super::rows;

/// How to ask.
pub(crate) const USAGE: &str = "battery [--scale SHARE] [--only NAME] [--seed N] [--json]
  --scale SHARE  the share of each row's full figure; 0.01 otherwise
  --only NAME    one row only
  --seed N       one case only, exactly as it was
  --json         JSON lines instead of a table
battery soak [--minutes N] …, which `battery soak --help` explains";

/// What the battery is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) scale: f64,
    pub(crate) only: Option<String>,
    pub(crate) seed: Option<u64>,
    pub(crate) json: bool,
}

impl Options {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// Says what is wrong with them.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            scale: 0.01,
            only: None,
            seed: None,
            json: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match &*word {
                "--scale" => {
                    let share = value()?;
                    let scale = share.parse().ok().filter(|scale| *scale > 0.0);
                    options.scale =
                        scale.ok_or(format!("--scale {share}: not a positive share"))?;
                }
                "--only" => {
                    let name = value()?;
                    if rows::ALL.iter().all(|row| row.name != name) {
                        let names: Vec<&str> = rows::ALL.iter().map(|row| row.name).collect();
                        return Err(format!(
                            "there is no row {name:?}, but {}",
                            names.join(", ")
                        ));
                    }
                    options.only = Some(name);
                }
                "--seed" => {
                    let seed = value()?;
                    let number = seed
                        .parse()
                        .map_err(|_| format!("--seed {seed}: not a number"));
                    options.seed = Some(number?);
                }
                "--json" => options.json = true,
                _ => return Err(format!("{word}: no such option")),
            }
        }
        Ok(options)
    }

    /// Says whether a row is asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, String> {
        Options::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(parse("--seed x"), Err("--seed x: not a number".into()));
        assert_eq!(
            parse("--scale 0"),
            Err("--scale 0: not a positive share".into())
        );
        assert_eq!(parse("--scale"), Err("--scale needs a value".into()));
        assert_eq!(parse("--fast"), Err("--fast: no such option".into()));
        assert!(parse("--only luck").is_err_and(|problem| problem.contains("simulation")));
        let fine = parse("--scale 1 --only simulation --seed 7 --json").expect("reads");
        assert_eq!((fine.scale, fine.seed, fine.json), (1.0, Some(7), true));
        assert!(fine.wants("simulation") && !fine.wants("another"));
    }
}
