//! What records cost, of real connections: bytes in the spool and at rest, and how quickly a spool is settled. Ignored, since
//! it is a measurement, and to be run in a namespace: `SOJOURN_TEST_INSIDE_NAMESPACE=1 unshare --net cargo test --release
//! -p sojourn-tcplog --test measure -- --ignored --nocapture`. The records stay in /tmp/sojourn-measure for other readers.

mod place;
mod traffic;

use std::fs;
use std::path::Path;

use sojourn_record::Origin;
use sojourn_tcplog::layout::Options;
use sojourn_tcplog::settle::recover;
use sojourn_tcplog::spool::Spool;
use sojourn_tcplog::{Kernel, KernelOptions, Mode, Source};
use sojourn_time::{Clock, HostClock, Nanos};

use place::{Place, within};
use traffic::{Traffic, connections};

const FOLDER: &str = "/tmp/sojourn-measure";

fn options() -> Options {
    Options {
        generation: 0,
        enabled: 1,
        ppl: 1,
        by_segment: 0,
        points: 0x1ff,
        min_interval_ns: 0,
        changes: 0,
        private_every: 16,
        one_in_flows: 1,
        netns: 0,
        cgroup: 0,
        cgroup_level: 0,
        process: 0,
        ports: 0,
        prefixes: 0,
        port: [0; 16],
        algorithm: [0; 16],
        burn: 0,
        reserved: 0,
        offset_ns: 0,
    }
}

#[test]
#[ignore = "a measurement"]
fn what_a_record_costs() {
    within("what_a_record_costs", |place| {
        for (name, flows, bytes) in [("one", 1, 1_000_000_000), ("ten", 20, 200_000_000), ("many", 3_000, 300_000)] {
            measure(place, name, flows, bytes);
        }
    });
}

fn measure(place: &Place, name: &str, flows: usize, bytes: usize) {
    let clock = HostClock;
    let folder = Path::new(FOLDER).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let how = KernelOptions { attach: Some(place.path().to_owned()), flows: 8192, ring_bytes: 1 << 25, btf: None };
    let mut kernel = Kernel::open(&how).expect("loads");
    kernel.ask(&options(), &[]).expect("asks");
    kernel.set_mode(Mode::On).expect("attaches");
    let mut spool = Spool::create(&folder, "{\"hz\":250}").expect("a spool");
    let (mut events, mut spooling) = (0, 0);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| connections(Traffic::V4, flows, bytes));
        while !traffic.is_finished() {
            let before = clock.thread_time();
            events += kernel.drain(&mut |cpu, bytes| spool.event(cpu, bytes)).expect("drains");
            spool.flush().expect("writes");
            spooling += (clock.thread_time() - before).0;
            clock.wait_until(clock.now() + Nanos::millis(2), Nanos::ZERO);
        }
    });
    events += kernel.drain(&mut |cpu, bytes| spool.event(cpu, bytes)).expect("drains");
    kernel.flows(&mut |slot, flow| spool.flow(slot, flow));
    spool.end().expect("writes");
    println!(
        "{name}: {events} records, {:.1} bytes and {} ns each in the spool",
        each(spool.length(), events),
        spooling / events.cast_signed()
    );
    let before = clock.thread_time();
    let settled = recover(&folder, &Origin::default()).expect("settles");
    let took = (clock.thread_time() - before).0;
    let samples = fs::metadata(folder.join("records/tcp_samples-tcplog-000.arrow")).expect("is there").len();
    println!(
        "{name}: settled {} samples and {} private states at {:.2} million records/s; {:.1} bytes a sample as Arrow",
        settled.records,
        settled.privates,
        (settled.records + settled.privates) as f64 * 1e3 / took as f64,
        each(samples, settled.records),
    );
}

fn each(bytes: u64, count: u64) -> f64 {
    bytes as f64 / count.max(1) as f64
}
