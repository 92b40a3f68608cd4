//! Who takes part, and what is measured. Owns both lists and how they are selected; measures nothing.

/// A server that a system's journal lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Postgres,
    Restate,
}

/// A system in one of its modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contestant {
    /// Also the name of its folder in `rivals/`.
    pub system: &'static str,
    pub mode: &'static str,
    /// The crate that a user would add.
    pub package: &'static str,
    pub needs: Needs,
}

impl Contestant {
    /// How it is called in the reports.
    pub fn title(&self) -> String {
        format!("{}/{}", self.system, self.mode)
    }
}

const fn contestant(
    system: &'static str,
    mode: &'static str,
    package: &'static str,
    needs: Needs,
) -> Contestant {
    Contestant {
        system,
        mode,
        package,
        needs,
    }
}

/// The name of this engine among the contestants.
pub const OWN: &str = "own";

/// Everybody.
pub const CONTESTANTS: [Contestant; 8] = [
    contestant(OWN, "synced", "workflow-runtime", Needs::Nothing),
    contestant(OWN, "buffered", "workflow-runtime", Needs::Nothing),
    contestant("durare", "sqlite", "durare", Needs::Nothing),
    contestant("durare", "sqlite-full", "durare", Needs::Nothing),
    contestant("durare", "postgres", "durare", Needs::Postgres),
    contestant("dbos", "postgres", "dbos", Needs::Postgres),
    contestant("duroxide", "sqlite", "duroxide", Needs::Nothing),
    contestant("restate", "server", "restate-sdk", Needs::Restate),
];

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Not a workload of its own: syncs of 1,000 steps, counted by strace.
    Syncs,
    W1,
    W2,
    W2Best,
    W3,
    W4Few,
    W4Many,
    W5,
    W6,
    W7,
    W8,
    W9,
}

/// All of them, with the name of each in the figures.
pub const WORKLOADS: [(Workload, &str); 12] = [
    (Workload::Syncs, "syncs"),
    (Workload::W1, "W1"),
    (Workload::W2, "W2"),
    (Workload::W2Best, "W2-best"),
    (Workload::W3, "W3"),
    (Workload::W4Few, "W4-1000"),
    (Workload::W4Many, "W4-10000"),
    (Workload::W5, "W5"),
    (Workload::W6, "W6"),
    (Workload::W7, "W7"),
    (Workload::W8, "W8"),
    (Workload::W9, "W9"),
];

impl Workload {
    /// Its name in the figures.
    pub fn name(self) -> &'static str {
        let known = WORKLOADS.iter().find(|(workload, _)| *workload == self);
        known.expect("every workload is in the list").1
    }
}

/// What a run of the comparison covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub contestants: Vec<Contestant>,
    pub workloads: Vec<Workload>,
}

impl Selection {
    /// Selects everything.
    pub fn all() -> Self {
        Self {
            contestants: CONTESTANTS.to_vec(),
            workloads: WORKLOADS.map(|(workload, _)| workload).to_vec(),
        }
    }

    /// Selects by words: systems (`durare`, `durare/postgres`) and workloads (`W2` is all of W2). Without a
    /// word of one kind all of that kind are meant. Syncs are always counted: no figure stands without them.
    ///
    /// # Errors
    ///
    /// A word that names nothing.
    pub fn only(words: &str) -> Result<Self, String> {
        let (mut contestants, mut workloads) = (Vec::new(), Vec::new());
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let named = CONTESTANTS
                .iter()
                .filter(|one| one.system == word || one.title() == word);
            let before = contestants.len() + workloads.len();
            contestants.extend(named);
            let part = format!("{word}-");
            let of = WORKLOADS
                .iter()
                .filter(|(_, name)| *name == word || name.starts_with(&part));
            workloads.extend(of.map(|(workload, _)| *workload));
            if contestants.len() + workloads.len() == before {
                return Err(unknown(word));
            }
        }
        let all = Self::all();
        if contestants.is_empty() {
            contestants = all.contestants;
        }
        if workloads.is_empty() {
            workloads = all.workloads;
        }
        workloads.push(Workload::Syncs);
        workloads.sort();
        workloads.dedup();
        Ok(Self {
            contestants,
            workloads,
        })
    }

    /// Says whether something is in it.
    pub fn has(&self, workload: Workload) -> bool {
        self.workloads.contains(&workload)
    }
}

fn unknown(word: &str) -> String {
    let systems: Vec<String> = CONTESTANTS.iter().map(Contestant::title).collect();
    let workloads: Vec<&str> = WORKLOADS.iter().map(|(_, name)| *name).collect();
    format!(
        "nothing is called {word:?}: there are {} and {}",
        systems.join(", "),
        workloads.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_select_systems_and_workloads() {
        let some = Selection::only("durare,W2").expect("both are known");
        assert_eq!(some.contestants.len(), 3);
        let workloads = [Workload::Syncs, Workload::W2, Workload::W2Best];
        assert_eq!(some.workloads, workloads);
        let one = Selection::only("own/synced").expect("it is known");
        assert_eq!(one.contestants.len(), 1);
        assert_eq!(one.workloads.len(), WORKLOADS.len());
    }

    #[test]
    fn a_word_that_names_nothing_is_refused_with_the_names_there_are() {
        let refusal = Selection::only("durare,W11").expect_err("there is no W11");
        assert!(refusal.contains("W11") && refusal.contains("durare/postgres"));
    }
}
