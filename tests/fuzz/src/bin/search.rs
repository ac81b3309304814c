//! Runs libFuzzer on one target: `SOJOURN_FUZZ_TARGET=NAME SOJOURN_FUZZ_SEEDS=FOLDER search FOLDER CORPUS…` writes the
//! target's seeds into FOLDER first; without a name it prints all names (scripts/fuzz.sh).

#![no_main]

use std::env;
use std::sync::OnceLock;

use sojourn_fuzz::{Target, target, targets};

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = env::var("SOJOURN_FUZZ_TARGET").unwrap_or_default();
        let Some(target) = target(&name) else {
            targets().iter().for_each(|target| println!("{}", target.name));
            std::process::exit(i32::from(!name.is_empty()));
        };
        if let Some(folder) = env::var_os("SOJOURN_FUZZ_SEEDS") {
            for (number, seed) in (target.seeds)().iter().enumerate() {
                let path = std::path::Path::new(&folder).join(format!("seed-{number}"));
                std::fs::write(&path, seed).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
            }
        }
        let _ = TARGET.set(target);
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.read)(bytes);
        }
    }
);
