//! Random numbers come from the runtime.

use workflow_runtime::workflow;

mod rand {
    pub fn random<T: Default>() -> T {
        T::default()
    }
}
mod fastrand {
    pub fn bool() -> bool {
        true
    }
}

#[workflow]
async fn checkout() -> bool {
    rand::random::<u8>() > 3 && fastrand::bool()
}

fn main() {}
