//! Faults against the sled store on a real disk: damaged files, killed processes, power
//! cuts. Owns nothing of the store; it sees it through its public face alone.

#[path = "store_faults"]
mod store_faults {
    mod annex;
    mod child;
    mod damage;
    mod disk;
    mod killed;
    mod log;
    mod power;
    mod reuse;
    mod story;
    mod work;
}
