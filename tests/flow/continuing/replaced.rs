//! A key that is given to another run while the line that has it goes on.

use bytes::Bytes;
use workflow_runtime::OnConflict;
use workflow_tests::Edited;

use super::*;

#[tokio::test]
async fn a_line_that_is_replaced_while_it_goes_on_ends() {
    let ledger = Ledger::shared();
    let slow = Edited {
        store: MemoryStore::new(),
        edit: |_: &mut Vec<Bytes>| {},
    };
    let engine = engine(&ledger).open_with(slow).await.expect("opens");
    let start = |round: u32| {
        let call = listening(vec![round.to_string()], usize::MAX);
        let start = engine.start(call).key("k");
        start.on_conflict(OnConflict::Replace).into_future()
    };
    let mut run = start(0).await.expect("starts");
    for round in 1..=60 {
        // Its key names a line now, and the line goes on while its newest run is looked for.
        run.signal("text", "a").await.expect("sends");
        until_line(&engine, run.id(), 1).await;
        let (_, _, replacing) = tokio::join!(
            run.signal("text", "b"),
            run.signal("text", "c"),
            start(round)
        );
        let new = replacing.expect("starts");
        assert_ne!(new.id(), run.id());
        let old = tokio::time::timeout(Duration::from_secs(60), run.result()).await;
        let old = old.unwrap_or_else(|_| panic!("round {round}: both lines go on"));
        assert!(old.is_err(), "it was cancelled: {old:?}");
        run = new;
    }
}
