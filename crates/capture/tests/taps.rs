//! Runs the suite on a simulated interface and on real ones.

#[path = "../../port/tests/namespace/mod.rs"]
mod namespace;
mod suite;

use sojourn_capture::{BpfTap, Directions, Opening, RingTap, Simulated, SimulatedTap, Tap, Wanted};
use sojourn_port::kernel::FilterStep;
use sojourn_port::packet::{PacketOptions, PacketPort};
use sojourn_port::pcap::Direction;
use sojourn_port::{Port, PortError};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};

use suite::{Bench, Room};

/// EtherType for experiments (IEEE 802).
const ETHERTYPE: u16 = 0x88B5;

#[test]
fn simulated_tap_passes_the_suite() {
    let mut next = 0;
    suite::run(Bench {
        open: Box::new(|directions, room| {
            SimulatedTap::new(if room == Room::Small { 1_000 } else { usize::MAX }, directions)
        }),
        pass: Box::new(move |tap, direction, frame| {
            next += 1;
            tap.pass(Simulated { frame: frame.to_vec(), at: Time(next), direction, is_super: false });
        }),
        source: Source::Simulated,
    });
}

fn ring_bytes(room: Room) -> usize {
    if room == Room::Small { 1 << 20 } else { 16 << 20 }
}

#[test]
fn packet_ring_tap_passes_the_suite() {
    namespace::within("packet_ring_tap_passes_the_suite", || {
        namespace::link();
        let open_port = |name| PacketPort::open_for(name, ETHERTYPE, PacketOptions::default()).expect("opens");
        let mut near = open_port("near");
        let mut far = namespace::at_far_end(|| open_port("far"));
        suite::run(Bench {
            open: Box::new(|directions, room| {
                let mut tap = RingTap::open("near", &opening(directions, ring_bytes(room))).expect("opens");
                tap.attach().expect("attaches");
                tap
            }),
            pass: Box::new(move |_, direction, frame| {
                send(if direction == Direction::In { &mut far } else { &mut near }, frame)
            }),
            source: Source::Kernel,
        });
    });
}

#[test]
fn bpf_tap_passes_the_suite() {
    namespace::within("bpf_tap_passes_the_suite", || {
        namespace::link();
        // This tap has no filter: prevent all frames but the test's.
        no_neighbours();
        namespace::at_far_end(no_neighbours);
        let open_port = |name| PacketPort::open_for(name, ETHERTYPE, PacketOptions::default()).expect("opens");
        let mut near = open_port("near");
        let mut far = namespace::at_far_end(|| open_port("far"));
        suite::run(Bench {
            open: Box::new(|directions, room| {
                let asked = Opening { filter: vec![], ..opening(directions, ring_bytes(room)) };
                let mut tap = BpfTap::open("near", &asked).expect("opens");
                tap.attach().expect("attaches");
                tap
            }),
            pass: Box::new(move |_, direction, frame| {
                send(if direction == Direction::In { &mut far } else { &mut near }, frame)
            }),
            source: Source::Bpf,
        });
    });
}

#[test]
fn bpf_tap_refuses_unsupported_options_and_reports_a_deleted_interface() {
    namespace::within("bpf_tap_refuses_unsupported_options_and_reports_a_deleted_interface", || {
        namespace::link();
        let plain = Opening { filter: vec![], ..opening(Directions::Both, 1 << 20) };
        for asked in [opening(Directions::Both, 1 << 20), Opening { stamps: Wanted::Kernel, ..plain.clone() }] {
            let error = BpfTap::open("near", &asked).expect_err("refuses");
            assert!(matches!(error, PortError::Wrong { .. }), "{error}");
        }
        let mut tap = BpfTap::open("near", &plain).expect("opens");
        tap.attach().expect("attaches");
        namespace::ip("link set dev near down");
        tap.look().expect("is down, and may come up again");
        namespace::ip("link delete dev near");
        assert!(matches!(tap.look(), Err(PortError::TakenAway { .. })));
        tap.detach().expect("detaches");
    });
}

#[test]
fn frame_that_the_bpf_program_cannot_copy_is_a_drop_but_not_for_a_full_ring() {
    namespace::within("frame_that_the_bpf_program_cannot_copy_is_a_drop_but_not_for_a_full_ring", || {
        namespace::link();
        no_neighbours();
        namespace::at_far_end(no_neighbours);
        // The ring has room, but no byte of a frame may be copied.
        let asked = Opening { filter: vec![], snap: 0, ..opening(Directions::Both, 1 << 20) };
        let mut tap = BpfTap::open("near", &asked).expect("opens");
        tap.attach().expect("attaches");
        let mut near = PacketPort::open_for("near", ETHERTYPE, PacketOptions::default()).expect("opens");
        (0..5).for_each(|_| send(&mut near, &[&[0xFF; 12][..], &ETHERTYPE.to_be_bytes(), &[0; 46]].concat()));
        tap.detach().expect("detaches");
        let totals = tap.totals().expect("counts");
        assert_eq!((totals.accepted, totals.dropped, totals.full), (5, 5, 0));
        // Reserved space is discarded, not delivered.
        while tap.take(&mut |passed| panic!("{passed:?}")).expect("reads") {}
    });
}

#[test]
fn deleted_interface_is_reported() {
    namespace::within("deleted_interface_is_reported", || {
        namespace::link();
        let mut tap = RingTap::open("near", &opening(Directions::Both, 1 << 20)).expect("opens");
        tap.attach().expect("attaches");
        tap.look().expect("is there");
        namespace::ip("link set dev near down");
        tap.look().expect("is down, and may come up again");
        namespace::ip("link delete dev near");
        let error = tap.look().expect_err("is gone");
        assert!(matches!(error, PortError::TakenAway { .. }), "{error}");
    });
}

#[test]
fn hardware_timestamps_are_refused_on_an_interface_without_them() {
    namespace::within("hardware_timestamps_are_refused_on_an_interface_without_them", || {
        namespace::link();
        let asked = Opening { stamps: Wanted::Hardware, ..opening(Directions::Both, 1 << 20) };
        let error = RingTap::open("near", &asked).expect_err("a veth has no clock");
        assert!(matches!(error, PortError::Unusable { .. }), "{error}");
    });
}

/// Disables IPv6 on every interface of this network namespace, which stops neighbour discovery.
fn no_neighbours() {
    std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").expect("switches IPv6 off");
}

/// Builds options that accept only the test's frames, not those of neighbour discovery.
fn opening(directions: Directions, ring_bytes: usize) -> Opening {
    let step = |code: u32, jt: u8, jf: u8, k: u32| FilterStep { code: code as u16, jt, jf, k };
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    let filter = vec![
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, protocol),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, ETHERTYPE.into()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    Opening { filter, directions, snap: u32::MAX, ring_bytes, is_promiscuous: true, stamps: Wanted::Best }
}

fn send(port: &mut PacketPort, frame: &[u8]) {
    while let Err(error) = port.transmit(frame) {
        assert!(error.is_full_queue(), "{error}");
        HostClock.wait_until(HostClock.now() + Nanos::micros(100), Nanos::ZERO);
    }
    while port.tx_timestamp().expect("reads stamps").is_some() {}
}

#[test]
fn detached_tap_delivers_no_frames() {
    namespace::within("detached_tap_delivers_no_frames", || {
        namespace::link();
        let mut tap = RingTap::open("near", &opening(Directions::Both, 1 << 20)).expect("opens");
        send(&mut PacketPort::open_for("near", ETHERTYPE, PacketOptions::default()).expect("opens"), &[0xFF; 60]);
        HostClock.wait_until(HostClock.now() + Nanos::millis(60), Nanos::ZERO);
        assert!(!tap.take(&mut |_| panic!("it shows a frame")).expect("takes"));
        assert_eq!(tap.totals().expect("counts").accepted, 0);
    });
}
