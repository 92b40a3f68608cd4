//! New ids come from the runtime.

use workflow_runtime::workflow;

mod uuid {
    pub struct Uuid;
    impl Uuid {
        pub fn new_v4() -> u128 {
            4
        }
        pub fn now_v7() -> u128 {
            7
        }
    }
}
use uuid::Uuid;

#[workflow]
async fn checkout() -> u128 {
    Uuid::new_v4() + uuid::Uuid::now_v7()
}

fn main() {}
