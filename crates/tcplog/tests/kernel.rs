//! Test the kernel programs with real connections on loopback, in a namespace and a cgroup of their own.

mod place;
mod traffic;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{self, sockopt};
use sojourn_tcplog::layout::{Flow, Options, PrivateState, Sample, Totals, disposition, point};
use sojourn_tcplog::{Event, FieldSet, Kernel, KernelOptions, Mode, Raw, Source, decode};
use sojourn_time::{Clock, HostClock, Nanos};

use place::{Place, within};
use traffic::{Traffic, connections};

const WAYS: [usize; 2] = [0, 1];

/// The contents of a log.
struct Log {
    samples: Vec<(u32, Sample)>,
    privates: Vec<(u32, PrivateState)>,
    flows: HashMap<u32, Flow>,
    totals: Totals,
}

fn options(ppl: u32) -> Options {
    Options {
        generation: 0,
        enabled: 1,
        ppl,
        by_segment: 0,
        points: 1 << point::IN | 1 << point::OUT,
        min_interval_ns: 0,
        changes: 0,
        private_every: 0,
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

fn open(place: &Place) -> Kernel {
    open_for(place, FieldSet::EVERY)
}

fn open_for(place: &Place, fields: FieldSet) -> Kernel {
    let options = KernelOptions {
        fields,
        attach: Some(place.path().to_owned()),
        flows: 1024,
        ring_bytes: 1 << 22,
        ..KernelOptions::default()
    };
    Kernel::open(&options).expect("loads")
}

/// Log while `traffic` runs, until all of it has been counted.
fn log(kernel: &mut Kernel, options: &Options, traffic: impl FnOnce()) -> Log {
    kernel.ask(options, &[]).expect("asks");
    kernel.set_mode(Mode::On).expect("attaches");
    traffic();
    await_rest(kernel);
    kernel.ask(&Options { enabled: 0, ..*options }, &[]).expect("asks");
    read(kernel)
}

/// Wait until the counters are stable: the last acknowledgements may still be in flight.
fn await_rest(kernel: &mut Kernel) {
    let give_up = HostClock.now() + Nanos::seconds(10);
    let mut before = None;
    loop {
        let now = sum(&kernel.totals().expect("reads")).seen;
        if before == Some(now) {
            return;
        }
        assert!(HostClock.now() < give_up, "it never stands still");
        before = Some(now);
        HostClock.wait_until(HostClock.now() + Nanos::millis(20), Nanos::ZERO);
    }
}

fn read(kernel: &mut Kernel) -> Log {
    let (mut samples, mut privates) = (Vec::new(), Vec::new());
    kernel
        .drain(&mut |cpu, bytes| match decode(bytes).expect("a record") {
            Event::Sample(sample) => samples.push((cpu, sample)),
            Event::Private(private) => privates.push((cpu, private)),
        })
        .expect("drains");
    let mut flows = HashMap::new();
    kernel.flows(&mut |slot, flow| assert!(flows.insert(slot, *flow).is_none()));
    Log { samples, privates, flows, totals: sum(&kernel.totals().expect("reads")) }
}

fn sum(totals: &[Totals]) -> Totals {
    let mut sum = totals[0];
    for totals in &totals[1..] {
        for way in WAYS {
            sum.seen[way] += totals.seen[way];
            sum.segments[way] += totals.segments[way];
            for disposition in 0..disposition::ALL {
                sum.dispositions[way][disposition] += totals.dispositions[way][disposition];
                sum.segments_of_dispositions[way][disposition] += totals.segments_of_dispositions[way][disposition];
            }
        }
        sum.events += totals.events;
        sum.events_full += totals.events_full;
        sum.privates += totals.privates;
        sum.privates_full += totals.privates_full;
        sum.number += totals.number;
    }
    sum
}

/// Every packet seen is in one count, in total and for each flow, and every logged packet has its sample.
fn assert_conserved(log: &Log) {
    let totals = &log.totals;
    for way in WAYS {
        assert_eq!(totals.seen[way], totals.dispositions[way].iter().sum::<u64>(), "way {way}: {totals:?}");
        assert_eq!(
            totals.segments[way],
            totals.segments_of_dispositions[way].iter().sum::<u64>(),
            "way {way}: {totals:?}"
        );
        let logged = log.samples.iter().filter(|(_, sample)| usize::from(sample.point) == way).count() as u64;
        assert_eq!(totals.dispositions[way][disposition::LOGGED], logged);
    }
    let full: u64 = WAYS.iter().map(|way| totals.dispositions[*way][disposition::FULL]).sum();
    let records = (log.samples.len() + log.privates.len()) as u64;
    assert_eq!(totals.number, records + full + totals.events_full + totals.privates_full);
    for (slot, flow) in &log.flows {
        for counts in flow.directions {
            assert_eq!(counts.seen, counts.dispositions.iter().sum::<u64>(), "slot {slot}: {flow:?}");
            assert_eq!(counts.segments, counts.segments_of_dispositions.iter().sum::<u64>(), "slot {slot}: {flow:?}");
        }
    }
}

#[test]
fn every_packet_of_real_connections_is_in_one_count() {
    within("every_packet_of_real_connections_is_in_one_count", |place| {
        for traffic in [Traffic::V4, Traffic::V6] {
            for (ppl, count) in [(1, 1), (7, 1), (1, 20), (7, 20)] {
                let mut kernel = open(place);
                let log = log(&mut kernel, &options(ppl), || connections(traffic, count, 300_000));
                assert_conserved(&log);
                assert_eq!(log.flows.len(), 2 * count, "both ends of each");
                for (slot, flow) in &log.flows {
                    assert!(flow.ended_ns > flow.first_ns && flow.packets() > 10, "{flow:?}");
                    for way in WAYS {
                        let is_here = |sample: &&Sample| sample.slot == *slot && usize::from(sample.point) == way;
                        let samples = log.samples.iter().map(|(_, sample)| sample).filter(is_here);
                        let mut packets: Vec<_> = samples.map(|sample| sample.packet).collect();
                        packets.sort_unstable();
                        let due: Vec<_> = (0..flow.directions[way].seen).step_by(ppl as usize).collect();
                        assert_eq!(packets, due, "exactly every {ppl}th, way {way}");
                    }
                }
            }
        }
    });
}

/// Connections of one socket after another, which then listens, and packets of another protocol.
///
/// Some kernels let no socket listen that was connected (EINVAL): there, a new socket listens.
#[test]
fn packets_of_a_reused_socket_are_judged_by_what_it_is_then() {
    within("packets_of_a_reused_socket_are_judged_by_what_it_is_then", |place| {
        let mut kernel = open(place);
        let log = log(&mut kernel, &options(1), || {
            let talk = |mut near: &TcpStream, mut far: TcpStream| {
                near.write_all(&[7; 3000]).expect("sends");
                far.read_exact(&mut [0; 3000]).expect("receives");
                far.write_all(&[7]).expect("answers");
                near.read_exact(&mut [0]).expect("is answered");
            };
            let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
            let address = listener.local_addr().expect("is bound");
            let socket = TcpStream::connect(address).expect("connects");
            talk(&socket, listener.accept().expect("accepts").0);
            net::connect_unspec(&socket).expect("disconnects");
            net::connect(&socket, &address).expect("connects again");
            talk(&socket, listener.accept().expect("accepts").0);
            net::connect_unspec(&socket).expect("disconnects");
            let socket = match net::listen(&socket, 1) {
                Ok(()) => TcpListener::from(OwnedFd::from(socket)),
                Err(Errno::INVAL) => TcpListener::bind("127.0.0.1:0").expect("binds"),
                Err(error) => panic!("listens: {error}"),
            };
            let other = TcpStream::connect(socket.local_addr().expect("is bound")).expect("connects");
            talk(&other, socket.accept().expect("accepts").0);
            let [one, two] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("binds"));
            one.send_to(&[7], two.local_addr().expect("is bound")).expect("sends");
            two.recv(&mut [0]).expect("receives");
        });
        assert_conserved(&log);
        assert_eq!(log.flows.len(), 6, "both ends of three connections");
        let [came, gone] = log.totals.dispositions;
        // A listener is what a SYN and the acknowledgement of its answer come to, and what answers.
        assert_eq!((came[disposition::NO_STATE], gone[disposition::NO_STATE]), (6, 3), "{:?}", log.totals);
        for none in [disposition::CONTROL, disposition::NO_SOCKET, disposition::NO_ROOM] {
            assert_eq!((came[none], gone[none]), (0, 0), "{none}: {:?}", log.totals);
        }
    });
}

#[test]
fn disabled_programs_count_nothing_and_detached_programs_leave_flows_ended() {
    within("disabled_programs_count_nothing_and_detached_programs_leave_flows_ended", |place| {
        let mut kernel = open(place);
        kernel.ask(&options(1), &[]).expect("asks");
        for mode in [Mode::Disabled, Mode::Empty, Mode::Placebo, Mode::Off] {
            kernel.set_mode(mode).expect("attaches");
            connections(Traffic::V4, 1, 10_000);
            let log = read(&mut kernel);
            assert!(log.samples.is_empty() && log.flows.is_empty(), "{mode:?}");
            assert_eq!(log.totals.seen, [0, 0], "{mode:?}");
        }
        assert!(kernel.programs().is_empty());
        // For packets that are not logged, the time of the last one comes from a coarse clock only.
        let mut unwanted = Options { ports: 1, ..options(1) };
        unwanted.port[0] = 1;
        kernel.ask(&unwanted, &[]).expect("asks");
        kernel.set_mode(Mode::On).expect("attaches");
        let held = traffic::held(Traffic::V4);
        kernel.set_mode(Mode::Off).expect("detaches");
        let log = read(&mut kernel);
        assert_conserved(&log);
        assert_eq!(log.flows.len(), 2);
        assert!(log.flows.values().all(|flow| flow.first_ns > 0 && flow.ended_ns >= flow.first_ns), "{:?}", log.flows);
        drop(held);
    });
}

#[test]
fn released_flow_slots_are_reused_and_counters_kept() {
    within("released_flow_slots_are_reused_and_counters_kept", |place| {
        let settings = KernelOptions {
            attach: Some(place.path().to_owned()),
            flows: 4,
            ring_bytes: 1 << 22,
            ..KernelOptions::default()
        };
        let mut kernel = Kernel::open(&settings).expect("loads");
        let mut released = 0;
        for _ in 0..5 {
            let log = log(&mut kernel, &options(3), || connections(Traffic::V6, 2, 1_000));
            assert_eq!(
                log.totals.dispositions.iter().map(|dispositions| dispositions[disposition::NO_ROOM]).sum::<u64>(),
                0
            );
            assert_eq!(log.flows.len(), 4);
            for way in WAYS {
                assert_eq!(log.totals.seen[way], log.totals.dispositions[way].iter().sum::<u64>());
            }
            for (slot, flow) in &log.flows {
                assert!(flow.ended_ns > 0 && u64::from(*slot) < 4);
                kernel.release(*slot).expect("gives back");
                released += 1;
            }
        }
        assert_eq!(released, 20);
    });
}

#[test]
fn full_flow_table_is_reported() {
    within("full_flow_table_is_reported", |place| {
        let settings = KernelOptions {
            attach: Some(place.path().to_owned()),
            flows: 2,
            ring_bytes: 1 << 20,
            ..KernelOptions::default()
        };
        let mut kernel = Kernel::open(&settings).expect("loads");
        let log = log(&mut kernel, &options(1), || connections(Traffic::V4, 3, 10_000));
        assert_conserved(&log);
        assert_eq!(log.flows.len(), 2);
        assert!(WAYS.iter().all(|way| log.totals.dispositions[*way][disposition::NO_ROOM] > 5), "{:?}", log.totals);
    });
}

#[test]
fn samples_of_events_come_from_the_programs_of_these_events() {
    within("samples_of_events_come_from_the_programs_of_these_events", |place| {
        let mut kernel = open(place);
        let points = 1 << point::RTT | 1 << point::STATE | 1 << point::DESTROY | 1 << point::RESET_IN;
        let asked = Options { points, private_every: 1, ..options(1) };
        let log = log(&mut kernel, &asked, || connections(Traffic::V4, 3, 100_000));
        assert_conserved(&log);
        for way in WAYS {
            let totals = &log.totals;
            assert_eq!(totals.dispositions[way][disposition::LOGGED], 0, "a way that is not sampled");
            assert_eq!(
                totals.seen[way],
                totals.dispositions[way][disposition::FILTERED] + totals.dispositions[way][disposition::NO_STATE]
            );
        }
        let count = |wanted| log.samples.iter().filter(|(_, sample)| sample.point == wanted).count();
        assert!(count(point::RTT) >= 6, "both ends know their round trip");
        assert!(
            count(point::STATE) >= 6 && count(point::DESTROY) >= 6,
            "{} {}",
            count(point::STATE),
            log.samples.len()
        );
        assert_eq!(log.totals.events, log.samples.len() as u64);
        assert!(log.samples.iter().all(|(_, sample)| sample.packet == u64::MAX && sample.segments == 0));
    });
}

#[test]
fn every_column_of_this_kernel_is_present_and_private_state_follows_its_sample() {
    within("every_column_of_this_kernel_is_present_and_private_state_follows_its_sample", |place| {
        let mut kernel = open(place);
        let columns = kernel.columns().expect("asks");
        assert!(columns.there.len() >= 60 && columns.unasked.is_empty(), "{columns:?}");
        let clock = kernel.clock().expect("asks");
        assert!(clock.name == "TAI" || clock.minus_monotonic_ns == 0);
        let log = log(&mut kernel, &Options { private_every: 4, ..options(1) }, || {
            connections(Traffic::V4, 1, 200_000);
        });
        assert_conserved(&log);
        assert_eq!(log.totals.privates, log.privates.len() as u64);
        for flow in log.flows.values() {
            let of_flow = |cookie| cookie == flow.cookie;
            let samples = |way: usize| {
                let is_here = |sample: &Sample| of_flow(sample.cookie) && usize::from(sample.point) == way;
                log.samples.iter().filter(|(_, sample)| is_here(sample)).count()
            };
            let privates = log.privates.iter().filter(|(_, private)| of_flow(private.cookie)).count();
            let due: usize = WAYS.iter().map(|way| samples(*way).div_ceil(4)).sum();
            assert_eq!(privates, due, "with every fourth, each way");
            assert_eq!(flow.process, std::process::id());
        }
        for (cpu, private) in &log.privates {
            let of = log.samples.iter().find(|(on, sample)| on == cpu && sample.number == private.sample);
            assert_eq!(of.expect("its sample").1.cookie, private.cookie);
        }
    });
}

/// Compare the fields of the same packets, read by programs for every field and by programs for some.
#[test]
fn selected_fields_equal_those_of_a_full_log_and_others_are_0() {
    within("selected_fields_equal_those_of_a_full_log_and_others_are_0", |place| {
        let every = FieldSet::EVERY.columns_of_all().there;
        // TCP's chronograph advances between two readings.
        let running = ["limited_by", "busy_us", "receiver_limited_us", "buffer_limited_us", "total_retrans"];
        let most = every.iter().filter(|column| !running.contains(column)).map(|column| (*column).to_owned());
        for words in [vec!["siftr".to_owned()], vec!["snd_cwnd".to_owned()], most.collect()] {
            let fields = FieldSet::read(&words).expect("they are known");
            let (mut full, mut slim) = (open(place), open_for(place, fields));
            assert_eq!(slim.columns().expect("asks").there.len() + slim.columns().expect("asks").absent.len(), 64);
            for kernel in [&mut full, &mut slim] {
                kernel.ask(&Options { private_every: 4, ..options(1) }, &[]).expect("asks");
                kernel.set_mode(Mode::On).expect("attaches");
            }
            connections(Traffic::V4, 2, 300_000);
            await_rest(&mut full);
            for kernel in [&mut full, &mut slim] {
                kernel.ask(&Options { enabled: 0, ..options(1) }, &[]).expect("asks");
            }
            let (full, slim) = (read(&mut full), read(&mut slim));
            assert_conserved(&full);
            assert_conserved(&slim);
            // At egress, the packet belongs to its socket alone: nothing changes between the two programs.
            let known = |sample: &Sample| (sample.cookie, sample.point, sample.packet);
            let of_full: HashMap<_, _> = full.samples.iter().map(|(_, sample)| (known(sample), sample)).collect();
            let mut compared = 0;
            for (_, sample) in &slim.samples {
                let mut read = Vec::new();
                sample.put(&mut read);
                let mut cleared = read.clone();
                fields.clear(&mut cleared);
                assert_eq!(read, cleared, "what nobody asked for is 0");
                if let Some(other) = of_full.get(&known(sample)).filter(|other| other.point == point::OUT) {
                    let mut expected = Vec::new();
                    Sample { number: sample.number, time_ns: sample.time_ns, slot: sample.slot, ..**other }
                        .put(&mut expected);
                    fields.clear(&mut expected);
                    assert_eq!(read, expected, "{words:?}: packet {}", sample.packet);
                    compared += 1;
                }
            }
            assert!(compared > 20, "{words:?}: {compared}");
        }
    });
}

#[test]
fn filter_is_evaluated_again_when_a_flow_changes_its_congestion_control() {
    within("filter_is_evaluated_again_when_a_flow_changes_its_congestion_control", |place| {
        let mut ends = traffic::held(Traffic::V4);
        let first = sockopt::tcp_congestion(&ends.0).expect("asks");
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").expect("reads");
        let Some(other) = known.split_whitespace().find(|name| *name != first) else {
            assert!(std::env::var_os("CI").is_none(), "CI's kernel must have two congestion controls");
            return eprintln!("skipped: this kernel has {first} only");
        };
        let mut kernel = open(place);
        let mut asked = options(1);
        asked.algorithm[..other.len()].copy_from_slice(other.as_bytes());
        kernel.ask(&asked, &[]).expect("asks");
        kernel.set_mode(Mode::On).expect("attaches");
        let port = ends.0.local_addr().expect("it has one").port();
        let talk = |kernel: &Kernel, (near, far): &mut (TcpStream, TcpStream)| {
            near.write_all(&[7; 100]).expect("sends");
            far.read_exact(&mut [0; 100]).expect("receives");
            let mut found = None;
            kernel.flows(&mut |_, flow| found = (flow.local_port == port).then_some(*flow).or(found));
            found.expect("it is there")
        };
        assert_eq!(talk(&kernel, &mut ends).verdict & 1, 0, "it uses {first}");
        sockopt::set_tcp_congestion(&ends.0, other).expect("changes");
        assert_eq!(talk(&kernel, &mut ends).verdict & 1, 0, "nobody has looked");
        kernel.reevaluate();
        let flow = talk(&kernel, &mut ends);
        assert_eq!((flow.verdict & 1, &flow.algorithm[..other.len()]), (1, other.as_bytes()));
        assert!(flow.directions[1].dispositions[disposition::LOGGED] > 0 && flow.verdict > 1, "{flow:?}");
        drop(ends);
        kernel.ask(&Options { enabled: 0, ..asked }, &[]).expect("asks");
        let log = read(&mut kernel);
        assert_conserved(&log);
    });
}

#[test]
fn run_time_of_the_bpf_programs_is_measured() {
    within("run_time_of_the_bpf_programs_is_measured", |place| {
        let mut kernel = open(place);
        kernel.measure_cost(true).expect("measures");
        for (mode, name) in [(Mode::On, "packet_out"), (Mode::Empty, "empty_out"), (Mode::Placebo, "placebo_out")] {
            kernel.ask(&Options { burn: 100, ..options(1) }, &[]).expect("asks");
            kernel.set_mode(mode).expect("attaches");
            connections(Traffic::V4, 2, 100_000);
            let cost = kernel.cost().expect("asks");
            let cost = cost.iter().find(|cost| cost.name == name).expect("it is there");
            assert!(cost.runs > 10 && cost.run_ns / cost.runs < 1_000_000, "{cost:?}");
            assert_eq!(cost.missed, 0, "nothing interrupts itself here");
        }
        kernel.measure_cost(false).expect("stops");
    });
}

#[test]
fn path_that_is_not_a_cgroup_is_refused_in_one_sentence() {
    let settings = KernelOptions { attach: Some("/proc".into()), ..KernelOptions::default() };
    let why = Kernel::open(&settings).expect_err("it is none").to_string();
    assert!(why.starts_with("/proc is not a cgroup of version 2"), "{why}");
    let settings = KernelOptions { btf: Some("/nowhere".into()), ..KernelOptions::default() };
    if rustix::process::geteuid().is_root() {
        let why = Kernel::open(&settings).expect_err("there are none").to_string();
        assert!(why.contains("/nowhere") && why.contains("CONFIG_DEBUG_INFO_BTF"), "{why}");
    }
}
