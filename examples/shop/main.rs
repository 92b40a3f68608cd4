//! Takes a small and a large order, approves the large one, and says how they are doing.
//!
//! `cargo run --example shop`. The store is a directory that is removed at the end: in a service it stays, and both
//! runs would send their last mail two weeks later, through whatever restarts until then.
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use std::sync::Arc;

use examples::shop::orders::{Approval, Order, checkout, deliver};
use examples::shop::outside::{Item, Outside, Receipt};
use workflow_runtime::{Engine, Key, Result, StepId};

/// Others that say what they are asked for. That they honour keys nobody can see here: nothing is asked for twice.
struct Printed;

impl Outside for Printed {
    fn reserve(&self, _key: StepId, order: u64, items: &[Item]) -> Result<()> {
        println!("stock:   {} kinds of items for order {order}", items.len());
        Ok(())
    }

    fn release(&self, _key: StepId, order: u64) -> Result<()> {
        println!("stock:   order {order} is not coming");
        Ok(())
    }

    fn charge(&self, key: StepId, order: u64, customer: &str, cents: u64) -> Result<Receipt> {
        println!("bank:    {customer} pays {cents} for order {order}, under {key}");
        let charge = format!("charge-{order}");
        Ok(Receipt { charge, cents })
    }

    fn refund(&self, _key: StepId, order: u64) -> Result<()> {
        println!("bank:    order {order} is paid back");
        Ok(())
    }

    fn ship(&self, _key: StepId, order: u64, _items: &[Item]) -> Result<String> {
        println!("carrier: a parcel for order {order}");
        Ok(format!("parcel-{order}"))
    }

    fn mail(&self, _key: StepId, customer: &str, text: &str) -> Result<()> {
        println!("mail:    to {customer}: {text}");
        Ok(())
    }
}

fn order(id: u64, customer: &str, cents: u64) -> Order {
    let items = vec![Item {
        sku: "tea-1".into(),
        count: 2,
    }];
    Order {
        id,
        customer: customer.into(),
        items,
        cents,
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let engine = Engine::builder()
        .register::<checkout>()
        .register::<deliver>()
        .resource_arc::<dyn Outside>(Arc::new(Printed))
        .open(dir.path().join("shop.db"))
        .await?;
    for order in [order(7, "ada", 1_250), order(8, "bob", 250_000)] {
        let (id, key) = (order.id, Key::business("order", order.id));
        let run = engine.start(checkout(order)).key(key).await?;
        let mut state = run.watch::<String>("state");
        while let Some(now) = state.changed().await? {
            println!("shop:    order {id} {now}");
            if now == "waits for approval" {
                let answer = Approval {
                    by: "eve".into(),
                    granted: true,
                };
                run.signal("approval", &answer).await?;
            }
            if now == "is sent" {
                break;
            }
        }
        println!();
    }
    engine.shutdown().await?;
    Ok(())
}
