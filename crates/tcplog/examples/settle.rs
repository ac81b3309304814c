//! Measure how long the conversion of a spool takes: convert the folder of a killed log several times; the spool stays.
//!
//! `cargo run --release -p sojourn-tcplog --example settle -- FOLDER [TIMES]`; records go to `FOLDER/settled`.

use std::path::Path;

use sojourn_record::Origin;
use sojourn_tcplog::tables::{Job, convert};
use sojourn_time::{Clock, HostClock};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().ok_or("a folder with a spool was expected")?;
    let times = words.next().map_or(Ok(1), |word| word.parse::<u32>())?;
    let records = Path::new(&folder).join("settled");
    for _ in 0..times {
        let job = Job {
            folder: Path::new(&folder),
            records: &records,
            who: "settle",
            part: 0,
            block: 0,
            origin: &Origin::default(),
        };
        let (started, thread) = (HostClock.now(), HostClock.thread_time());
        let (converted, spent) = convert(&job)?;
        let took = (HostClock.now() - started).0 as f64 * 1e-9;
        let here = (HostClock.thread_time() - thread).0 as f64 * 1e-9;
        drop(spent);
        println!(
            "{} records, {} private states: {took:.3} s, {here:.3} s of them processor time of the first thread",
            converted.records, converted.privates
        );
    }
    Ok(())
}
