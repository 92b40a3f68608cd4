//! The checker, checked: each mistake on purpose must be noticed, under the number of the rule that it breaks.
//!
//! Needs the feature `seeded-bugs`: `cargo test -p battery --features seeded-bugs --test seeded`.

mod chance;
#[expect(
    dead_code,
    reason = "only the battery counts processes and compares traces"
)]
mod sim;

use std::panic::{AssertUnwindSafe, catch_unwind};

use workflow_runtime::seeded::{Bug, seed};

/// Cases after which a mistake that was not noticed never will be: many times as many as the worst of them takes.
const ENOUGH: u64 = 1_000;

/// The first case in which a rule is found broken.
fn noticed(bug: Bug, rule: u8) -> Option<u64> {
    let prefix = format!("{rule}: ");
    (0..ENOUGH).find(|case| {
        let _seeded = seed(bug);
        // A mistake may as well bring the case down: that is no notice of it.
        let verdict = catch_unwind(AssertUnwindSafe(|| sim::case(*case)));
        verdict.is_ok_and(|verdict| verdict.violations.iter().any(|it| it.starts_with(&prefix)))
    })
}

/// Makes a test of each mistake: it is noticed under the number of its rule.
macro_rules! noticed {
    ($($test:ident: $bug:ident breaks $rule:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let case = noticed(Bug::$bug, $rule);
                assert!(case.is_some(), "{:?} was not noticed in {ENOUGH} cases", Bug::$bug);
            }
        )*

        #[test]
        fn every_rule_has_a_mistake_that_breaks_it() {
            let rules = [$($rule),*];
            let missing: Vec<u8> = (1..=21).filter(|rule| !rules.contains(rule)).collect();
            assert_eq!(missing, [] as [u8; 0]);
        }
    };
}

noticed! {
    an_acknowledgement_before_the_sync_is_noticed: SkippedSync breaks 1;
    a_gap_in_a_journal_is_noticed: JournalGap breaks 2;
    an_outcome_that_is_overwritten_is_noticed: OutcomeOverwritten breaks 2;
    a_second_outcome_of_a_step_is_noticed: StepRunAgain breaks 3;
    a_body_with_another_id_than_its_record_is_noticed: AnotherIdOutside breaks 4;
    an_id_of_two_calls_is_noticed: SharedStepId breaks 5;
    a_step_that_runs_again_is_noticed: StepRunAgain breaks 6;
    outcomes_in_another_order_are_noticed: ReplayOutOfOrder breaks 7;
    a_second_run_of_a_key_is_noticed: SecondRunPerKey breaks 8;
    another_input_that_is_given_the_run_of_a_key_is_noticed: OtherInputTaken breaks 9;
    a_key_that_expires_early_is_noticed: KeyExpiredEarly breaks 10;
    a_timer_that_fires_early_is_noticed: EarlyTimer breaks 11;
    a_lost_signal_is_noticed: LostSignal breaks 12;
    a_signal_that_comes_twice_is_noticed: SignalTwice breaks 12;
    a_stale_owner_that_writes_is_noticed: SkippedFencing breaks 13;
    a_run_that_nobody_wakes_is_noticed: OrphanedRun breaks 14;
    a_run_that_takes_the_others_down_is_noticed: PoisonStopsQueues breaks 15;
    a_record_behind_the_end_is_noticed: TerminalReopened breaks 16;
    attempts_that_do_not_count_are_noticed: AttemptsForgotten breaks 17;
    damage_that_nobody_names_is_noticed: CorruptionUnnoticed breaks 18;
    an_acknowledgement_after_an_error_of_the_disk_is_noticed: AcknowledgedAfterError breaks 19;
    a_sweep_that_takes_a_live_run_is_noticed: RetentionRemovesLive breaks 20;
    a_listing_of_all_namespaces_is_noticed: NamespaceLeak breaks 21;
}

#[test]
fn without_a_mistake_nothing_is_noticed() {
    for case in 0..300 {
        let violations = sim::case(case).violations;
        assert_eq!(violations, [] as [String; 0], "case {case}");
    }
}
