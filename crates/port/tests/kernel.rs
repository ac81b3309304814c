//! Runs the suite over the kernel's ports, across a veth link between two namespaces, and tests what each port promises
//! in addition.

mod namespace;
mod suite;

use std::net::{IpAddr, SocketAddr};

use sojourn_port::icmp::{IcmpPort, IcmpSocket};
use sojourn_port::kernel::Interface;
use sojourn_port::packet::{PacketListener, PacketOptions, PacketPort};
use sojourn_port::udp::{UdpListener, UdpOptions, UdpPort};
use sojourn_port::{Batch, Listener, Port, PortError, Received, StampKind, Stamps};
use sojourn_time::{Clock, HostClock, Nanos, Source, Time};
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::Header;

use namespace::{at_far_end, ip, ip_says, link, tc, within};
use suite::frames::{self, Frames};
use suite::{Bench, run};

#[test]
fn packet_passes_the_suite() {
    within("packet_passes_the_suite", || {
        link();
        for qdisc_bypass in [false, true] {
            let port = PacketPort::open("near", qdisc_bypass).expect("opens");
            assert_eq!(port.mac(), frames::NEAR);
            let far = at_far_end(|| PacketListener::open(&[])).expect("listens");
            run(bench(port, frames::ETHERNET, answering(far)));
        }
    });
}

#[test]
fn udp_passes_the_suite() {
    within("udp_passes_the_suite", || {
        link();
        for peer in ["10.77.1.2:0", "[fd77::2]:0"] {
            for interface in [None, Some("near")] {
                let mut peer: SocketAddr = peer.parse().expect("an address");
                let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let far = at_far_end(|| UdpListener::open(any.parse().expect("an address"))).expect("listens");
                peer.set_port(far.address().port());
                let port = UdpPort::open(peer, interface).expect("opens");
                run(bench(port, frames::UDP, answering(far)));
            }
        }
    });
}

#[test]
fn icmp_passes_the_suite() {
    within("icmp_passes_the_suite", || {
        link();
        for kind in [IcmpSocket::Raw, IcmpSocket::Echo] {
            for (peer, frames) in [("10.77.1.2", frames::ICMP4), ("fd77::2", frames::ICMP6)] {
                std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").expect("permits echo sockets");
                let peer: IpAddr = peer.parse().expect("an address");
                let port = IcmpPort::open_as(kind, peer, Some("near")).expect("opens");
                run(bench(port, frames, Box::new(|| {})));
            }
        }
    });
}

#[test]
fn two_icmp_ports_to_one_peer_do_not_hear_each_other() {
    within("two_icmp_ports_to_one_peer_do_not_hear_each_other", || {
        link();
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").expect("permits echo sockets");
        for (peer, frames) in [("10.77.1.2", frames::ICMP4), ("fd77::2", frames::ICMP6)] {
            let peer: IpAddr = peer.parse().expect("an address");
            let kinds = [IcmpSocket::Raw, IcmpSocket::Raw, IcmpSocket::Echo];
            let mut ports = kinds.map(|kind| IcmpPort::open_as(kind, peer, None).expect("opens"));
            for (sequence, port) in (0..).zip(&mut ports) {
                port.transmit(&(frames.request)(sequence, 64)).expect("transmits");
            }
            for (sequence, port) in (0..).zip(&mut ports) {
                let mut buffer = [0; 100];
                let received = soon(port, &mut buffer).expect("receives");
                assert_eq!((frames.sequence)(&buffer[..received.length]), Some(sequence));
                assert_eq!(port.receive(&mut buffer).expect("receives"), None, "only its own reply");
                assert_eq!(port.local_drops(), 0, "what is kept out is no drop");
            }
        }
    });
}

#[test]
fn tx_timestamp_numbers_stay_correct_after_link_down() {
    within("tx_timestamp_numbers_stay_correct_after_link_down", || {
        link();
        let port = PacketPort::open("near", true).expect("opens");
        let far = at_far_end(|| PacketListener::open(&[])).expect("listens");
        let mut bench = bench(port, frames::ETHERNET, answering(far));
        let (before, _) = bench.exchange_stamp(1, 60);
        bench.reply();
        ip("link set dev near down");
        for _ in 0..3 {
            let refused = bench.port.transmit(&(bench.request)(2, 60)).expect_err("the link is down").to_string();
            assert!(refused.contains("interface is down"), "{refused}");
        }
        ip("link set dev near up");
        // Until the kernel has detected the carrier, the far end's queue accepts no answer.
        at_far_end(|| Interface::usable("far")).expect("has its carrier again");
        let (after, _) = bench.exchange_stamp(3, 60);
        assert_eq!(after.number, before.number + 1);
        let (_, reply) = bench.reply();
        assert_eq!((bench.sequence)(&reply), Some(3));
    });
}

#[test]
fn failure_to_open_is_reported_in_one_sentence() {
    within("failure_to_open_is_reported_in_one_sentence", || {
        link();
        let peer = "10.77.1.2:7707".parse().expect("an address");
        let said = |result: Result<PacketPort, PortError>| result.expect_err("is refused").to_string();
        assert_eq!(
            said(PacketPort::open("nosuch", true)),
            "nosuch: there is no such interface here; `ip link` lists those there are"
        );
        ip("-n peer link set dev far down");
        // The kernel reports it with a delay of up to a second.
        let give_up = HostClock.now() + Nanos::seconds(5);
        let refused = loop {
            match PacketPort::open("near", true) {
                Ok(_) if HostClock.now() < give_up => {}
                other => break said(other),
            }
        };
        assert!(refused.contains("no carrier"), "{refused}");
        ip("link set dev near down");
        assert!(said(PacketPort::open("near", true)).contains("`ip link set dev near up`"));
        let refused = UdpPort::open(peer, None).expect_err("has no route").to_string();
        assert!(refused.contains("no route"), "{refused}");
        let taken = UdpListener::open("0.0.0.0:0".parse().expect("an address")).expect("listens").address();
        let first = UdpListener::open(taken).expect("listens");
        let refused = UdpListener::open(first.address()).expect_err("is taken").to_string();
        assert!(refused.contains("in use"), "{refused}");
        sojourn_rights::keep_only(&[]).expect("gives up rights");
        let denied = said(PacketPort::open("lo", true));
        assert!(denied.contains("CAP_NET_RAW") && denied.contains("usermod -aG"), "{denied}");
        let denied = IcmpPort::open(peer.ip(), None).expect_err("is denied").to_string();
        assert!(denied.contains("ping_group_range"), "{denied}");
    });
}

#[test]
fn what_a_veth_says_of_its_speed_is_no_limit() {
    within("what_a_veth_says_of_its_speed_is_no_limit", || {
        link();
        assert_eq!(Interface::named("near").expect("is there").link_bps(), None);
    });
}

#[test]
fn opening_waits_for_a_carrier_that_is_coming_up() {
    within("opening_waits_for_a_carrier_that_is_coming_up", || {
        link();
        ip("-n peer link set dev far down");
        while Interface::named("near").expect("is there").running {}
        let other_end = std::thread::spawn(|| {
            HostClock.wait_until(HostClock.now() + Nanos::millis(100), Nanos::ZERO);
            ip("-n peer link set dev far up");
        });
        PacketPort::open("near", true).expect("opens once the other end is up");
        other_end.join().expect("switches the other end on");
    });
}

#[test]
fn peer_without_a_listener_is_reported() {
    within("peer_without_a_listener_is_reported", || {
        link();
        let mut port = UdpPort::open("10.77.1.2:9".parse().expect("an address"), None).expect("opens");
        port.transmit(&[0; 40]).expect("the first one leaves");
        let refused = soon(&mut port, &mut [0; 64]).expect_err("is refused").to_string();
        assert!(refused.contains("nobody listens"), "{refused}");
    });
}

#[test]
fn frames_that_do_not_fit_the_receive_buffer_are_local_drops() {
    within("frames_that_do_not_fit_the_receive_buffer_are_local_drops", || {
        link();
        let mut near = PacketPort::open("near", true).expect("opens");
        let mut far = at_far_end(|| PacketListener::open(&["far"])).expect("listens");
        let request = (frames::ETHERNET.request)(0, 1514);
        let mut sent = 0_u64;
        while far.local_drops() == 0 && sent < 1_000_000 {
            near.transmit(&request).expect("transmits");
            near.tx_timestamp().expect("reads stamps");
            sent += 1;
        }
        let mut kept = 0;
        while far.receive(&mut [0; 2000]).expect("receives").is_some() {
            kept += 1;
        }
        assert_eq!(kept + far.local_drops(), sent, "each frame was kept or dropped by us");
        assert!(far.local_drops() > 0);
    });
}

const STREAM: u16 = 0x88B6;
/// The protocol number of UDP.
const UDP: u8 = 17;

#[test]
fn vlan_tagged_frames_are_received_as_on_the_wire() {
    within("vlan_tagged_frames_are_received_as_on_the_wire", || {
        link();
        let options = PacketOptions { tagged: true, ..PacketOptions::default() };
        let mut near = PacketPort::open_for("near", STREAM, options).expect("opens");
        let mut far = at_far_end(|| PacketPort::open_for("far", STREAM, options)).expect("opens");
        let mut deaf = at_far_end(|| PacketPort::open_for("far", STREAM, PacketOptions::default())).expect("opens");
        let tag = [0x81, 0x00, 0x60, 0x0A];
        let tagged = |mtu| [&frames::FAR.0[..], &frames::NEAR.0, &tag, &STREAM.to_be_bytes(), &vec![7; mtu]].concat();
        let untagged = [&tagged(46)[..12], &tagged(46)[16..]].concat();
        let other = [&tagged(46)[..12], &[0x81, 0, 0, 10, 0x12, 0x34], &[7; 46][..]].concat();
        for frame in [&other, &tagged(46), &untagged, &tagged(1500)] {
            near.transmit(frame).expect("transmits");
        }
        wait_for_delivery();
        let mut buffer = [0; 2000];
        let received = far.receive(&mut buffer).expect("receives").expect("a frame");
        assert_eq!(&buffer[..received.length], tagged(46));
        let mut seen = Vec::new();
        far.receive_batch(&mut |frame, _| seen.push(frame.to_vec())).expect("receives");
        assert_eq!(seen, [untagged.clone(), tagged(1500)]);
        let mut seen = Vec::new();
        deaf.receive_batch(&mut |frame, _| seen.push(frame.to_vec())).expect("receives");
        assert_eq!(seen, [untagged], "tagged frames come in only where they are asked for");
        assert!(matches!(near.transmit(&tagged(1501)), Err(PortError::Wrong { .. })));
    });
}

#[test]
fn frames_at_maximum_rate_are_received_or_counted_as_dropped() {
    within("frames_at_maximum_rate_are_received_or_counted_as_dropped", || {
        link();
        let options = PacketOptions { qdisc_bypass: true, stamps: Stamps::None, tagged: true, ..Default::default() };
        let mut near = PacketPort::open_for("near", STREAM, options).expect("opens");
        assert_eq!(near.engine(), "AF_PACKET TX_RING, qdisc bypassed");
        let mut far = at_far_end(|| PacketPort::open_for("far", STREAM, PacketOptions::default())).expect("opens");
        let before = Interface::named("near").expect("is there").counters().expect("counts");
        let mut sent = 0;
        for length in [60, 1514, 1000] {
            let frame = [&frames::FAR.0[..], &frames::NEAR.0, &STREAM.to_be_bytes(), &vec![7; length - 14]].concat();
            // More than the ring holds, and one incomplete frame.
            let mut frames = frame.repeat(700);
            frames.push(0);
            assert_eq!(near.transmit_batch(&frames, length).expect("transmits"), 700);
            sent += 700;
            // Single frames use another path and follow the earlier ones.
            near.transmit(&[&frame[..length - 1], &[9]].concat()).expect("transmits");
            sent += 1;
        }
        assert!(matches!(near.transmit_batch(&[0; 2000], 2000), Err(PortError::Wrong { .. })));
        wait_for_delivery();
        let (mut kept, mut ends, mut lost) = (0, 0, 0);
        let give_up = HostClock.now() + Nanos::seconds(10);
        while kept + lost < sent && HostClock.now() < give_up {
            let each = &mut |frame: &[u8], _: Received| {
                assert!([60, 1514, 1000].contains(&frame.len()));
                kept += 1;
                ends += u32::from(frame.last() == Some(&9));
            };
            while far.receive_batch(each).expect("receives") > 0 {}
            let dropped = Interface::named("near").expect("is there").counters().expect("counts").send_dropped;
            lost = far.local_drops() + dropped - before.send_dropped;
        }
        assert_eq!(kept + lost, sent);
        assert!(kept > 0 && ends <= 3);
    });
}

#[test]
fn frames_that_the_ring_failed_to_send_are_not_sent_later() {
    within("frames_that_the_ring_failed_to_send_are_not_sent_later", || {
        link();
        let options = PacketOptions { qdisc_bypass: true, stamps: Stamps::None, ..Default::default() };
        let mut near = PacketPort::open_for("near", STREAM, options).expect("opens");
        let frames =
            |byte: u8| [&frames::FAR.0[..], &frames::NEAR.0, &STREAM.to_be_bytes(), &[byte; 46]].concat().repeat(100);
        ip("link set dev near down");
        let refused = near.transmit_batch(&frames(1), 60).expect_err("the link is down").to_string();
        assert!(refused.contains("interface is down"), "{refused}");
        ip("link set dev near up");
        Interface::usable("near").expect("has its carrier again");
        let mut far = at_far_end(|| PacketPort::open_for("far", STREAM, PacketOptions::default())).expect("opens");
        assert_eq!(near.transmit_batch(&frames(2), 60).expect("transmits"), 100);
        wait_for_delivery();
        let mut seen = Vec::new();
        while far.receive_batch(&mut |frame, _| seen.extend(frame.last().copied())).expect("receives") > 0 {}
        assert_eq!(seen, [2; 100]);
    });
}

#[test]
fn frames_for_other_hosts_do_not_hide_later_frames() {
    within("frames_for_other_hosts_do_not_hide_later_frames", || {
        link();
        ip("-n peer link set dev far promisc on");
        let mut near = PacketPort::open_for("near", STREAM, PacketOptions::default()).expect("opens");
        let mut far = at_far_end(|| PacketPort::open_for("far", STREAM, PacketOptions::default())).expect("opens");
        let to =
            |station: u8| [&[2, 0, 0, 0, 0, station], &frames::NEAR.0[..], &STREAM.to_be_bytes(), &[7; 46]].concat();
        for station in 0..150 {
            near.transmit(&to(station)).expect("transmits");
        }
        let own = [&frames::FAR.0, &to(1)[6..]].concat();
        near.transmit(&own).expect("transmits");
        wait_for_delivery();
        let mut seen = Vec::new();
        assert_eq!(far.receive_batch(&mut |frame, _| seen.push(frame.to_vec())).expect("receives"), 1);
        assert_eq!(seen, [own]);
        assert_eq!(far.receive_batch(&mut |_, _| {}).expect("receives"), 0);
    });
}

#[test]
fn multicast_frames_are_received_after_joining_the_group() {
    within("multicast_frames_are_received_after_joining_the_group", || {
        link();
        let group: MacAddress = "03:77:00:00:00:01".parse().expect("an address");
        let far = at_far_end(|| PacketPort::open_for("far", STREAM, PacketOptions::default())).expect("opens");
        far.join(group).expect("joins");
        assert!(ip_says("-n peer maddress show dev far").contains("03:77:00:00:00:01"));
        let refused = far.join(frames::FAR).expect_err("is no group").to_string();
        assert!(refused.contains("not of a group"), "{refused}");
        drop(far);
        assert!(!ip_says("-n peer maddress show dev far").contains("03:77:00:00:00:01"));
    });
}

#[test]
fn a_listening_port_hears_groups_and_answers_each_sender() {
    within("a_listening_port_hears_groups_and_answers_each_sender", || {
        link();
        for (any, group, own) in [("0.0.0.0:0", "239.7.7.7", "10.77.1.2"), ("[::]:0", "ff02::7777", "fd77::2")] {
            let any: SocketAddr = any.parse().expect("an address");
            let [group, own]: [IpAddr; 2] = [group, own].map(|address| address.parse().expect("an address"));
            let listen = || UdpPort::listen(any, Some("far"), UdpOptions::default());
            let mut far = at_far_end(listen).expect("listens");
            assert!(far.transmit(b"to whom?").is_err(), "nobody has sent yet");
            let port = far.address().expect("an address").port();
            let to = SocketAddr::new(group, port);
            let mut near = UdpPort::open_with(to, Some("near"), UdpOptions::default()).expect("opens");
            near.transmit(b"not yet").expect("transmits");
            far.join(group).expect("joins");
            near.transmit_batch(b"abcdefgh", 4).expect("transmits");
            let mut direct = UdpPort::open(SocketAddr::new(own, port), None).expect("opens");
            direct.transmit(b"ijkl").expect("transmits");
            wait_for_delivery();
            let mut seen = Vec::new();
            let each = &mut |payload: &[u8], _: Received| seen.push(payload.to_vec());
            assert_eq!(far.receive_batch(each).expect("receives"), 3);
            assert_eq!(seen, [b"abcd", b"efgh", b"ijkl"]);
            for (nth, payload) in seen.iter().enumerate() {
                far.answer(nth, payload).expect("answers");
            }
            wait_for_delivery();
            let mut buffer = [0; 10];
            assert_eq!(direct.receive(&mut buffer).expect("receives").expect("an answer").length, 4);
            assert_eq!(&buffer[..4], b"ijkl");
            let mut answers = 0;
            near.receive_batch(&mut |payload, _| answers += usize::from(payload.len() == 4)).expect("receives");
            assert_eq!(answers, 2, "answers come from the listener's own address, not the group's");
            let refused = far.join(own).expect_err("is no group").to_string();
            assert!(refused.contains("no group"), "{refused}");
        }
    });
}

#[test]
fn sent_packets_carry_the_requested_dscp() {
    within("sent_packets_carry_the_requested_dscp", || {
        link();
        for (peer, ethertype, at) in [("10.77.1.2:9", 0x0800, 15), ("[fd77::2]:9", 0x86DD, 14)] {
            let mut far =
                at_far_end(|| PacketPort::open_for("far", ethertype, PacketOptions::default())).expect("opens");
            let options = UdpOptions { dscp: 46, ..UdpOptions::default() };
            let peer = peer.parse().expect("an address");
            UdpPort::open_with(peer, None, options).expect("opens").transmit(&[0; 40]).expect("transmits");
            let mut frame = [0; 200];
            soon_of_ours(&mut far, &mut frame);
            let traffic_class = if ethertype == 0x0800 { frame[at] } else { frame[at] << 4 | frame[at + 1] >> 4 };
            assert_eq!(traffic_class, 46 << 2);
            let options = UdpOptions { dscp: 64, ..UdpOptions::default() };
            assert!(matches!(UdpPort::open_with(peer, None, options), Err(PortError::Wrong { .. })));
            let mut echo = IcmpPort::open_with(peer.ip(), None, Stamps::None, 8).expect("opens");
            echo.transmit(&(if peer.is_ipv4() { frames::ICMP4 } else { frames::ICMP6 }.request)(0, 64))
                .expect("transmits");
            soon_of_ours(&mut far, &mut frame);
            let traffic_class = if ethertype == 0x0800 { frame[at] } else { frame[at] << 4 | frame[at + 1] >> 4 };
            assert_eq!(traffic_class, 8 << 2);
            let wrong = IcmpPort::open_with(peer.ip(), None, Stamps::None, 64);
            assert!(matches!(wrong, Err(PortError::Wrong { .. })));
        }
    });
}

/// Receives the next frame that is none of the kernel's own: IPv6 looks for neighbours and joins groups by itself.
fn soon_of_ours(far: &mut PacketPort, frame: &mut [u8; 200]) {
    const IPV6: [u8; 2] = 0x86DD_u16.to_be_bytes();
    loop {
        soon(far, frame).expect("receives");
        let (next, icmp) = (frame[20], frame[54]);
        let of_kernel = frame[12..14] == IPV6 && (next == 0 || next == 58 && (130..=143).contains(&icmp));
        if !of_kernel {
            return;
        }
    }
}

#[test]
fn reply_carries_the_dscp_of_its_request() {
    within("reply_carries_the_dscp_of_its_request", || {
        link();
        for (own, ethertype, at, protocol) in [("10.77.1.2:0", 0x0800, 15, 23), ("[fd77::2]:0", 0x86DD, 14, 20)] {
            let own: SocketAddr = own.parse().expect("an address");
            let mut far = at_far_end(|| UdpListener::open(own)).expect("opens");
            let to = far.address();
            for dscp in [46, 0, 10] {
                let options = UdpOptions { dscp, ..UdpOptions::default() };
                let mut near = UdpPort::open_with(to, None, options).expect("opens");
                let mut seen = PacketPort::open_for("near", ethertype, PacketOptions::default()).expect("opens");
                near.transmit(&[7; 40]).expect("transmits");
                wait_for_delivery();
                let mut frame = [0; 200];
                let (received, caller) = far.receive(&mut frame).expect("receives").expect("a request");
                far.answer(&caller, &frame[..received.length]).expect("answers");
                soon(&mut seen, &mut frame).expect("receives");
                while frame[protocol] != UDP {
                    soon(&mut seen, &mut frame).expect("receives"); // neighbour discovery may occur at any time
                }
                let traffic_class = if ethertype == 0x0800 { frame[at] } else { frame[at] << 4 | frame[at + 1] >> 4 };
                assert_eq!(traffic_class, dscp << 2);
                soon(&mut near, &mut frame).expect("the answer goes to the requester");
            }
        }
    });
}

/// The kernel looks for the host for three seconds, and keeps what goes to it meanwhile in the sender's buffer.
#[test]
fn answers_to_an_address_that_no_host_has_never_wait() {
    within("answers_to_an_address_that_no_host_has_never_wait", || {
        link();
        let queue = "/proc/sys/net/ipv4/neigh/far/unres_qlen_bytes";
        if at_far_end(|| std::fs::write(queue, "1000000000")).is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI must be root");
            eprintln!("skipped: a user namespace has no settings of neighbours");
            return;
        }
        let mut far = at_far_end(|| UdpListener::open("10.77.1.2:0".parse().expect("an address"))).expect("opens");
        ip("address add 10.77.1.9/24 dev near");
        let forger = std::net::UdpSocket::bind("10.77.1.9:0").expect("binds");
        forger.send_to(&[7; 1400], far.address()).expect("sends");
        wait_for_delivery();
        let mut frame = [0; 1500];
        let (received, caller) = far.receive(&mut frame).expect("receives").expect("a request");
        ip("address del 10.77.1.9/24 dev near");
        let mut answer = || far.answer(&caller, &frame[..received.length]);
        let error = (0..1_000_000).find_map(|_| answer().err()).expect("the buffer has an end");
        assert!(error.is_full_queue(), "{error}");
        let began = HostClock.now();
        let refused = (0..1_000).filter(|_| answer().is_err()).count();
        assert_eq!(refused, 1_000);
        assert!(HostClock.now() - began < Nanos::seconds(1), "one that waits takes a second each");
    });
}

/// Whoever sends such a message needs to know no port and no identifier.
#[test]
fn forged_icmp_errors_end_no_port() {
    within("forged_icmp_errors_end_no_port", || {
        link();
        let peer: IpAddr = "10.77.1.2".parse().expect("an address");
        let mut port = IcmpPort::open_as(IcmpSocket::Raw, peer, Some("near")).expect("opens");
        let mut forger = at_far_end(|| PacketPort::open_for("far", 0x0800, PacketOptions::default())).expect("opens");
        // Without 3, the port that nobody listens at: who measures judges that.
        for code in [0, 1, 2, 4, 5, 6, 7, 8, 9, 13] {
            for _ in 0..5 {
                forger.transmit(&unreachable(code)).expect("transmits");
            }
            wait_for_delivery();
            // Longer than the MTU that code 4 tells.
            let request = (frames::ICMP4.request)(u16::from(code), 1000);
            port.transmit(&request).unwrap_or_else(|error| panic!("{code}: {error}"));
            forger.transmit(&unreachable(code)).expect("transmits");
            let reply = soon(&mut port, &mut [0; 1100]).unwrap_or_else(|error| panic!("{code}: {error}"));
            assert_eq!(reply.length, 1000);
        }
    });
}

/// A frame to `near` that says of an ICMP packet of its to 10.77.1.2 that it was not delivered, for this reason.
fn unreachable(code: u8) -> Vec<u8> {
    let header = |protocol: u8, bytes: u16, from: u8, to: u8| {
        let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 77, 1, from, 10, 77, 1, to];
        header[2..4].copy_from_slice(&bytes.to_be_bytes());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    // The MTU of the next hop, which code 4 tells, is at bytes 6 and 7: 600.
    let mut message =
        [&[3, code, 0, 0, 0, 0, 0x02, 0x58][..], &header(1, 84, 1, 2), &[8, 0, 0, 0, 0, 0, 0, 0]].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ethernet = Header { destination: frames::NEAR, source: frames::FAR, ethertype: 0x0800 };
    [&ethernet.to_bytes()[..], &header(1, 20 + message.len() as u16, 2, 1), &message].concat()
}

/// The checksum of the Internet (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let sum = bytes.chunks(2).fold(0_u32, |sum, two| sum + u32::from(u16::from_be_bytes([two[0], two[1]])));
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !((folded & 0xFFFF) + (folded >> 16)) as u16
}

#[test]
fn timestamps_are_taken_where_requested() {
    within("timestamps_are_taken_where_requested", || {
        link();
        // Without a queueing discipline there is no scheduling timestamp.
        ip("link set dev near txqueuelen 1000");
        tc("qdisc replace dev near root pfifo");
        let frame = (frames::ETHERNET.request)(0, 60);
        let kinds = |stamps| {
            let options = PacketOptions { stamps, ..PacketOptions::default() };
            let mut port = PacketPort::open_for("near", STREAM, options).expect("opens");
            assert_eq!(port.capabilities().tx_timestamps, stamps != Stamps::None);
            port.transmit_batch(&[&frame[..], &frame].concat(), 60).expect("transmits");
            wait_for_delivery();
            let mut stamps = Vec::new();
            while let Some(stamp) = port.tx_timestamp().expect("reads stamps") {
                stamps.push((stamp.number, stamp.kind));
            }
            stamps
        };
        let (scheduled, left) = (StampKind::Scheduled, StampKind::Left);
        assert_eq!(kinds(Stamps::None), []);
        assert_eq!(kinds(Stamps::Departure), [(0, left), (1, left)]);
        assert_eq!(kinds(Stamps::All), [(0, scheduled), (0, left), (1, scheduled), (1, left)]);
    });
}

/// Gives the kernel time to deliver outstanding frames, even on a busy host.
fn wait_for_delivery() {
    HostClock.wait_until(HostClock.now() + Nanos::millis(200), Nanos::ZERO);
}

/// Receives the next frame; fails if none arrives.
fn soon(port: &mut impl Port, buffer: &mut [u8]) -> Result<Received, PortError> {
    let give_up = HostClock.now() + Nanos::seconds(10);
    loop {
        if let Some(received) = port.receive(buffer)? {
            return Ok(received);
        }
        assert!(HostClock.now() < give_up, "nothing came");
        HostClock.wait_until(HostClock.now() + Nanos::millis(1), Nanos::ZERO);
    }
}

fn bench<P: Batch>(port: P, Frames { request, sequence, lengths }: Frames, answer: Box<dyn FnMut()>) -> Bench<P> {
    Bench { port, clock: Box::new(HostClock), request, sequence, lengths, answer, source: Source::Kernel }
}

/// Answers all requests that have arrived at the far end.
fn answering<L: Listener + 'static>(mut far: L) -> Box<dyn FnMut()> {
    let mut request = vec![0; 2000];
    let mut reply = vec![0; 2000];
    Box::new(move || {
        while let Some((received, peer)) = far.receive(&mut request).expect("receives") {
            assert_eq!(received.arrived.source, Source::Kernel);
            let length = answer(&request[..received.length], far.framing(), received.arrived.at, &mut reply);
            far.answer(&peer, &reply[..length]).expect("answers");
        }
    })
}

fn answer(request: &[u8], framing: sojourn_port::Framing, arrived: Time, reply: &mut [u8]) -> usize {
    let left = HostClock.now();
    if framing == sojourn_port::Framing::Udp {
        return sojourn_wire::answer(request, arrived, left, reply).expect("a request");
    }
    let (header, payload) = Header::split(request).expect("a header");
    let back = Header { destination: header.source, source: header.destination, ..header }.to_bytes();
    reply[..back.len()].copy_from_slice(&back);
    back.len() + sojourn_wire::answer(payload, arrived, left, &mut reply[back.len()..]).expect("a request")
}
