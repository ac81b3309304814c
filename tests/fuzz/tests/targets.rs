//! Each target takes its seeds, what searches have found, and mutations of both.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::Path;

use sojourn_fuzz::{mutated, targets};

const MUTATIONS: u64 = 300;

#[test]
fn every_target_takes_whatever_it_is_given() {
    for target in targets() {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let found = fs::read_dir(corpus).into_iter().flatten().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        for seed in seeds.into_iter().chain(found) {
            (0..MUTATIONS).for_each(|number| (target.read)(&mutated(&seed, number)));
        }
    }
}
