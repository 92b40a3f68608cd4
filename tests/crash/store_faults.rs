//! Faults against the sled store on a real disk: damaged files, killed processes, power
//! cuts. Owns nothing of the store; it sees it through its public face alone.

#[path = "store_faults"]
mod store_faults {
    mod annex;
    mod child;
    mod compaction;
    mod cut;
    mod damage;
    mod damaged_annex;
    mod disk;
    mod killed;
    mod log;
    mod lying;
    mod power;
    mod reuse;
    mod said;
    mod sleeping;
    mod story;
    mod tidying;
    mod work;
}
