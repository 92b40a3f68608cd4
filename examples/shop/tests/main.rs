//! The shop, tested with every part of the testing kit. The book's chapter on testing walks through it.

mod books;
mod crashes;
mod deploys;
mod orders;

use std::sync::Arc;

use examples::shop::orders::{Approval, Order, deliver};
use examples::shop::outside::{Item, Outside};
use workflow_runtime::testing::{Ledger, TestEngine, TestEngineBuilder};

use self::books::Books;

/// A small order: nobody has to approve it.
fn tea() -> Order {
    let items = vec![Item {
        sku: "tea-1".into(),
        count: 2,
    }];
    Order {
        id: 7,
        customer: "ada".into(),
        items,
        cents: 1_250,
    }
}

/// An order that somebody has to approve.
fn yacht() -> Order {
    Order {
        id: 8,
        cents: 2_500_000,
        ..tea()
    }
}

fn granted() -> Approval {
    Approval {
        by: "eve".into(),
        granted: true,
    }
}

/// The shop's engine, with the outside as a ledger.
fn shop(engine: TestEngineBuilder, ledger: &Ledger) -> TestEngineBuilder {
    let books = Arc::new(Books(ledger.clone()));
    engine
        .register::<examples::shop::orders::checkout>()
        .register::<deliver>()
        .resource_arc::<dyn Outside>(books)
}

/// The engine of a test that does not look at the outside.
fn engine() -> TestEngineBuilder {
    shop(TestEngine::builder(), &Ledger::honouring_keys())
}
