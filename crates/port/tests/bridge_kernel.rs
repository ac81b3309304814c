//! Bridge ports over veth cables, with traffic of real hosts: TCP and UDP with all offloads, tags in metadata, jumbo
//! frames; and with changes to interfaces while they are bridged.
//!
//! BPF programs need root: otherwise these tests are skipped with a message; with `CI` set that is a failure.

mod cables;
mod namespace;

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;

use sojourn_port::bridge::{self, How, Means, Wanted};
use sojourn_port::kernel::wait_for_any;
use sojourn_port::packet::{PacketOptions, PacketPort};
use sojourn_port::xdp::XdpPort;
use sojourn_port::{Port, PortError};
use sojourn_time::{Clock, HostClock, Nanos};
use sojourn_wire::ethernet::PROBE_ETHERTYPE;
use sojourn_wire::stream::STREAM_ETHERTYPE;

use cables::{Bridge, ENOUGH, FOUR, MEANS, SIX, cables, hosts, pattern, pause, tcp, udp};
use namespace::{at, ip, run, within_permitted};

#[test]
fn tcp_and_udp_pass_with_all_offloads_enabled() {
    within_permitted("tcp_and_udp_pass_with_all_offloads_enabled", || {
        hosts();
        for (means, engine) in MEANS {
            let mut bridge = Bridge::open(means);
            assert_eq!((bridge.left.engine(), bridge.right.engine()), (engine, engine), "{:?}", bridge.said);
            let features = run("ip", "netns exec west ethtool -k west");
            assert!(features.contains("tx-checksum-ip-generic: on"), "{features}");
            // The kernel disables segmentation offload at the peer of an interface with native XDP.
            let segments = format!("tcp-segmentation-offload: {}", if means == Means::Auto { "off" } else { "on" });
            assert!(features.contains(&segments), "{features}");
            for addresses in [FOUR, SIX] {
                tcp(&mut bridge, addresses, 4_000_000);
                udp(&mut bridge, addresses, &[0, 1, 20, 1400, 1452, 3000, 20_000]);
            }
            assert_eq!(bridge.longest_seen, 1514);
            assert_eq!((bridge.left.local_drops(), bridge.right.local_drops()), (0, 0));
        }
    });
}

#[test]
fn datagrams_sent_by_udp_segmentation_offload_are_split() {
    within_permitted("datagrams_sent_by_udp_segmentation_offload_are_split", || {
        hosts();
        for (means, _) in MEANS {
            let mut bridge = Bridge::open(means);
            for [west, east] in [FOUR, SIX] {
                let east: SocketAddr = SocketAddr::new(east.parse().expect("an address"), 7779);
                let to = at("east", || UdpSocket::bind(east)).expect("binds");
                to.set_nonblocking(true).expect("does not block");
                let family = if east.is_ipv4() { "AF_INET" } else { "AF_INET6" };
                // SOL_UDP, UDP_SEGMENT: five datagrams of 1,000 bytes and one of 234 in one call.
                let program = format!(
                    "import socket;s=socket.socket(socket.{family},socket.SOCK_DGRAM);s.bind(('{west}',0));\
                     s.setsockopt(17,103,1000);s.sendto(bytes(i%251_for_i_in_range(5234)),('{}',7779))",
                    east.ip()
                );
                let program = program.replace("_for_i_in_", " for i in ");
                let mut child = Command::new("ip")
                    .args(["netns", "exec", "west", "python3", "-c", &program])
                    .spawn()
                    .expect("starts");
                let mut arrived = Vec::new();
                let mut buffer = [0; 2000];
                bridge.run_until(|| {
                    arrived.extend(to.recv(&mut buffer).map(|length| buffer[..length].to_vec()));
                    arrived.len() == 6
                });
                assert!(child.wait().expect("ends").success());
                assert_eq!(arrived.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 1000, 1000, 1000, 234]);
                assert!(arrived.concat() == (0..5234).map(|n| (n % 251) as u8).collect::<Vec<_>>());
            }
        }
    });
}

/// Builds a kernel bridge, which strips tags into metadata: behind `west`, with `outer` as the peer of its other port.
fn bridge_behind_west() {
    ip("-n west link add name outer type veth peer name inner");
    ip("-n west link add name switch type bridge");
    for device in ["outer", "inner", "switch"] {
        ip(&format!("-n west link set dev {device} up"));
    }
    for device in ["inner", "west"] {
        ip(&format!("-n west link set dev {device} master switch"));
    }
}

#[test]
fn vlan_tags_in_metadata_are_bridged() {
    within_permitted("vlan_tags_in_metadata_are_bridged", || {
        cables("west", "east");
        bridge_behind_west();
        ip("-n east link set dev lo up");
        let tagged = |tags: &[u8], bytes: usize| {
            let head = [&[2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1][..], tags, &STREAM_ETHERTYPE.to_be_bytes()].concat();
            [head, pattern(bytes)].concat()
        };
        for (means, _) in MEANS {
            let mut bridge = Bridge::open(means);
            let mut outer = at("west", || PacketPort::open("outer", false)).expect("opens");
            let how = How { means: Means::Packet, take_over: true, ..How::default() };
            let mut east = at("east", || bridge::open("east", "lo", &how)).expect("opens").0;
            for tags in [&[][..], &[0x81, 0, 0x60, 10], &[0x88, 0xA8, 0, 20, 0x81, 0, 0, 10], &[0x81, 0, 0, 0]] {
                for bytes in [46, 1000, 1492] {
                    let sent = tagged(tags, bytes);
                    outer.transmit(&sent).expect("sends");
                    let mut arrived = Vec::new();
                    bridge.run_until(|| {
                        east.receive(64, &mut |frame, _| arrived.push(frame.to_vec())).expect("receives");
                        arrived.iter().any(|frame| frame[6..12] == sent[6..12])
                    });
                    assert!(arrived.contains(&sent), "{means:?}, {tags:x?}, {bytes}: {:x?}", &arrived[0][..24]);
                }
            }
        }
    });
}

#[test]
fn jumbo_frames_are_bridged_by_an_engine_that_supports_them() {
    within_permitted("jumbo_frames_are_bridged_by_an_engine_that_supports_them", || {
        hosts();
        let mtu = |bytes: usize| {
            for (port, host) in [("left", "west"), ("right", "east")] {
                ip(&format!("link set dev {port} mtu {bytes}"));
                ip(&format!("-n {host} link set dev {host} mtu {bytes}"));
            }
        };
        mtu(9000);
        let mut bridge = Bridge::open(Means::Auto);
        assert!(bridge.left.engine().starts_with("AF_PACKET"));
        assert!(bridge.said[0].contains("MTU of 9000 bytes is too large for AF_XDP"), "{:?}", bridge.said);
        for addresses in [FOUR, SIX] {
            tcp(&mut bridge, addresses, 4_000_000);
            udp(&mut bridge, addresses, &[8952, 30_000]);
        }
        assert_eq!(bridge.longest_seen, 9014);
        drop(bridge);
        let refused = bridge::open("left", "right", &How { means: Means::Xdp, ..How::default() })
            .map(drop)
            .expect_err("is too long");
        assert!(refused.to_string().contains("too large for AF_XDP"), "{refused}");
        mtu(3486);
        let mut bridge = Bridge::open(Means::Auto);
        assert_eq!(bridge.left.engine(), MEANS[0].1, "{:?}", bridge.said);
        tcp(&mut bridge, FOUR, 4_000_000);
        udp(&mut bridge, SIX, &[3438]);
        assert_eq!(bridge.longest_seen, 3500);
    });
}

#[test]
fn a_changed_mtu_is_followed() {
    within_permitted("a_changed_mtu_is_followed", || {
        hosts();
        let mtus = |bytes: usize| {
            for (port, host) in [("left", "west"), ("right", "east")] {
                ip(&format!("link set dev {port} mtu {bytes}"));
                ip(&format!("-n {host} link set dev {host} mtu {bytes}"));
            }
        };
        for (means, bytes) in [(Means::Auto, 3000), (Means::Packet, 9000)] {
            mtus(1500);
            let mut bridge = Bridge::open(means);
            udp(&mut bridge, FOUR, &[1472]);
            mtus(bytes);
            // A pause without frames makes no difference.
            let then = HostClock.now() + Nanos::millis(250);
            bridge.run_until(|| HostClock.now() >= then);
            udp(&mut bridge, FOUR, &[bytes - 28]);
            assert_eq!(bridge.longest_seen, bytes + 14);
            mtus(1400);
            udp(&mut bridge, FOUR, &[1372, 3000]);
            tcp(&mut bridge, SIX, 1_000_000);
        }
    });
}

#[test]
fn an_interface_may_go_down_and_come_back() {
    within_permitted("an_interface_may_go_down_and_come_back", || {
        hosts();
        for (means, _) in MEANS {
            let mut bridge = Bridge::open(means);
            udp(&mut bridge, FOUR, &[100]);
            for (down, up) in [
                ("link set dev left down", "link set dev left up"),
                ("-n east link set dev east down", "-n east link set dev east up"),
                ("link set dev right down", "link set dev right up"),
            ] {
                ip(down);
                let from = at("west", || UdpSocket::bind("10.77.2.1:0")).expect("binds");
                let _ = from.send_to(b"lost", "10.77.2.2:7778");
                let end = HostClock.now() + Nanos::millis(250);
                bridge.run_until(|| HostClock.now() > end);
                for port in [&mut bridge.left, &mut bridge.right] {
                    let mut has_room = true;
                    for _ in 0..2 {
                        has_room = port.put(&[0xFF; 60]).expect("puts");
                        port.flush().expect("flushes");
                    }
                    assert_eq!(has_room, !down.contains(port.name()), "{down}");
                    if !has_room {
                        let start = HostClock.now();
                        wait_for_any([port.descriptor()].into_iter(), Nanos::millis(5)).expect("waits");
                        assert!(
                            HostClock.now() - start > Nanos::millis(4),
                            "an interface that is down causes no wake-up"
                        );
                    }
                }
                ip(up);
                for host in ["west", "east"] {
                    ip(&format!("-n {host} neighbor flush dev {host}"));
                }
                // IPv6 addresses are removed with the link.
                tcp(&mut bridge, FOUR, 100_000);
            }
        }
    });
}

#[test]
fn an_interface_that_vanishes_is_an_error() {
    within_permitted("an_interface_that_vanishes_is_an_error", || {
        hosts();
        for (means, _) in MEANS {
            for gone in ["link delete dev right", "link set dev right netns west"] {
                let Bridge { left, mut right, watch, .. } = Bridge::open(means);
                ip(gone);
                let give_up = HostClock.now() + ENOUGH;
                let error = loop {
                    match right.receive(64, &mut |_, _| {}) {
                        Err(error) => break error,
                        Ok(_) => assert!(HostClock.now() < give_up, "it is never noticed"),
                    }
                };
                assert!(matches!(&error, PortError::TakenAway { object, .. } if object == "right"), "{error}");
                assert!(error.to_string().contains("vanished"), "{error}");
                let put = right.put(&[0xFF; 60]).and_then(|_| right.flush());
                assert!(put.is_err_and(|error| error.to_string().contains("vanished")));
                drop((watch, left, right));
                if gone.contains("netns") {
                    ip("-n west link delete dev right");
                }
                ip("link add name right type veth peer name east netns east");
                ip("link set dev right up");
                ip("-n east link set dev east up");
            }
        }
    });
}

/// A bridge that must see only probe frames.
fn redirecting() -> Bridge {
    let wanted = [PROBE_ETHERTYPE; 2].map(|ethertype| Wanted::Ethertypes(vec![ethertype]));
    let (left, right, said) =
        bridge::open("left", "right", &How { means: Means::Xdp, wanted, ..How::default() }).expect("opens");
    assert_eq!((left.engine(), said.len()), ("AF_XDP copy, native XDP, redirecting", 0));
    Bridge::of(left, right, said)
}

#[test]
fn frames_that_no_pipe_needs_stay_in_the_kernel() {
    within_permitted("frames_that_no_pipe_needs_stay_in_the_kernel", || {
        hosts();
        for host in ["west", "east"] {
            run("ip", &format!("netns exec {host} ethtool -K {host} gro on"));
        }
        let mut bridge = redirecting();
        // The bridge sleeps meanwhile.
        run("ip", "netns exec west ping -c 5 -i 0.01 -W 5 10.77.2.2");
        run("ip", "netns exec west ping -c 5 -i 0.01 -W 5 fd77:2::2");
        pause(Nanos::millis(20));
        bridge.turn();
        // It sees only multicast reports, whose extension header the program does not parse.
        assert!(bridge.longest_seen < 98, "{}", bridge.longest_seen);
        // It must complete incomplete checksums.
        for addresses in [FOUR, SIX] {
            tcp(&mut bridge, addresses, 1_000_000);
            udp(&mut bridge, addresses, &[1, 20, 1400, 3000]);
        }
        let mut west = at("west", || PacketPort::open("west", false)).expect("opens");
        let frames = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &PROBE_ETHERTYPE.to_be_bytes(), &[0; 46]].concat();
        west.transmit(&frames).expect("sends");
        let give_up = HostClock.now() + ENOUGH;
        let mut seen = Vec::new();
        while seen.is_empty() && HostClock.now() < give_up {
            // Multicast reports of the kernel may still arrive.
            let mut keep = |frame: &[u8]| {
                if frame[12..14] == PROBE_ETHERTYPE.to_be_bytes() {
                    seen.push(frame.to_vec());
                }
            };
            bridge.left.receive(64, &mut |frame, _| keep(frame)).expect("receives");
        }
        assert_eq!(seen, [frames]);
        for port in [&mut bridge.left, &mut bridge.right] {
            assert_eq!((port.local_drops(), port.news().expect("is ours")), (0, None));
        }
    });
}

#[test]
fn frames_that_no_pipe_needs_are_forwarded_in_the_kernel_and_counted_at_both_ports() {
    within_permitted("frames_that_no_pipe_needs_are_forwarded_in_the_kernel_and_counted_at_both_ports", || {
        hosts();
        let wanted = [Wanted::Ethertypes(Vec::new()), Wanted::Ethertypes(Vec::new())];
        let how = How { wanted, ..How::default() };
        let (left, right, said) = bridge::open("left", "right", &how).expect("opens");
        assert_eq!((left.engine(), left.shows_frames(), said.len()), ("within the kernel (TC redirect)", false, 0));
        assert!(promiscuity("left") == 1 && promiscuity("right") == 1, "frames have other destination MAC addresses");
        let mut bridge = Bridge::of(left, right, said);
        let features = run("ip", "netns exec west ethtool -k west");
        assert!(features.contains("tcp-segmentation-offload: on"), "super-frames pass as they are: {features}");
        for addresses in [FOUR, SIX] {
            tcp(&mut bridge, addresses, 4_000_000);
            udp(&mut bridge, addresses, &[0, 1, 20, 1400, 1452, 3000, 20_000]);
        }
        let before = [bridge.left.passed(), bridge.right.passed()];
        // Each segment of a super-frame is counted: 4 MB are more than 2,700 of them, per address family.
        assert!(before[0].received > 5_400 && before.iter().all(|passed| passed.lost() == 0), "{before:?}");
        let mut west =
            at("west", || PacketPort::open_for("west", STREAM_ETHERTYPE, PacketOptions::default())).expect("opens");
        let mut east =
            at("east", || PacketPort::open_for("east", STREAM_ETHERTYPE, PacketOptions::default())).expect("opens");
        let head = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &STREAM_ETHERTYPE.to_be_bytes()].concat();
        for nth in 0..20_u8 {
            west.transmit(&[&head[..], &[nth; 46]].concat()).expect("sends");
        }
        let mut came = 0;
        while east.receive(&mut [0; 100]).expect("receives").is_some() {
            came += 1;
        }
        let passed = bridge.left.passed();
        assert_eq!((came, passed.received - before[0].received, passed.lost()), (20, 20, 0));
        // A frame that the other port does not accept, because it is down, is lost and counted.
        ip("link set dev right down");
        for _ in 0..7 {
            west.transmit(&[&head[..], &[0; 46]].concat()).expect("sends");
        }
        // The host's kernel may send frames of its own (IPv6 neighbour discovery): these are lost and counted too.
        let passed = bridge.left.passed();
        assert!(passed.lost() >= 7, "{passed:?}");
        assert_eq!(passed.received - before[0].received, 20 + passed.lost());
        // One of the lost ones could have stood for several, as many before them did.
        pause(Nanos::millis(250));
        let news: Vec<String> = std::iter::from_fn(|| bridge.left.news().expect("is ours")).collect();
        assert!(news.iter().any(|news| news.contains("that it has sent is not exact")), "{news:?}");
        // The counters continue under another name.
        ip("link set dev right name moved");
        assert!(bridge.left.passed().lost() >= passed.lost());
        ip("link set dev moved up");
        let lost = bridge.left.passed().lost();
        west.transmit(&[&head[..], &[0; 46]].concat()).expect("sends");
        assert_eq!(bridge.left.passed().lost(), lost);
        drop(bridge);
        assert_eq!((promiscuity("left"), promiscuity("moved")), (0, 0));
        run("tc", "qdisc replace dev moved root pfifo limit 100");
        let (.., said) = bridge::open("left", "moved", &how).expect("opens");
        assert!(
            matches!(&said[..], [one] if one.contains("its queueing discipline pfifo drops counts as sent")),
            "{said:?}"
        );
    });
}

#[test]
fn filter_at_egress_that_takes_forwarded_frames_is_reported_and_they_count_as_lost() {
    within_permitted("filter_at_egress_that_takes_forwarded_frames_is_reported_and_they_count_as_lost", || {
        cables("west", "east");
        let wanted = [Wanted::Ethertypes(Vec::new()), Wanted::Ethertypes(Vec::new())];
        let (left, right, said) = bridge::open("left", "right", &How { wanted, ..How::default() }).expect("opens");
        let mut bridge = Bridge::of(left, right, said);
        let mut west =
            at("west", || PacketPort::open_for("west", STREAM_ETHERTYPE, PacketOptions::default())).expect("opens");
        let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &STREAM_ETHERTYPE.to_be_bytes(), &[0; 46]].concat();
        let mut send = |count: u64| (0..count).for_each(|_| assert!(west.transmit(&frame).is_ok()));
        send(20);
        // Nothing is missing, and nothing is said, for as long as a missing frame would need to be reported.
        let then = HostClock.now() + Nanos::millis(2_500);
        while HostClock.now() < then {
            assert_eq!((bridge.left.news().expect("is ours"), bridge.right.news().expect("is ours")), (None, None));
            pause(Nanos::millis(50));
        }
        run("tc", "qdisc add dev right clsact");
        run("tc", "filter add dev right egress protocol all u32 match u32 0 0 action mirred egress redirect dev lo");
        send(30);
        let told = bridge.until_news().expect("goes on");
        assert!(told.starts_with("right was given packets that neither left it nor are among its drops ("), "{told}");
        // A look may fall among them.
        let give_up = HostClock.now() + Nanos::seconds(10);
        while bridge.left.passed().lost() < 30 && HostClock.now() < give_up {
            assert_eq!(bridge.left.news().expect("is ours"), None);
            pause(Nanos::millis(50));
        }
        let passed = bridge.left.passed();
        assert_eq!((passed.received, passed.sent, passed.lost()), (50, 20, 30));
    });
}

#[test]
fn frames_are_not_forwarded_in_the_kernel_past_a_foreign_program_or_with_another_backend() {
    within_permitted("frames_are_not_forwarded_in_the_kernel_past_a_foreign_program_or_with_another_backend", || {
        cables("west", "east");
        let wanted = [Wanted::Ethertypes(Vec::new()), Wanted::Ethertypes(Vec::new())];
        let how = |means| How { means, wanted: wanted.clone(), ..How::default() };
        let opened = bridge::open("left", "right", &how(Means::Packet)).expect("opens");
        assert!(opened.0.engine().starts_with("AF_PACKET") && opened.0.shows_frames());
        drop(opened);
        // Another process's program, which ends with its own port.
        let other = XdpPort::open("right", STREAM_ETHERTYPE).expect("opens");
        let refused = bridge::open("left", "right", &how(Means::Auto)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("an XDP program hangs on it already"), "{refused}");
        drop(other);
    });
}

/// Returns how many requests for promiscuous mode an interface has.
fn promiscuity(device: &str) -> u32 {
    let shown = run("ip", &format!("-d link show dev {device}"));
    let count = shown.split_once("promiscuity ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    count.expect("ip tells")
}

#[test]
fn port_that_drops_redirected_frames_is_detected() {
    within_permitted("port_that_drops_redirected_frames_is_detected", || {
        hosts();
        let mut bridge = redirecting();
        let mut west =
            at("west", || PacketPort::open_for("west", STREAM_ETHERTYPE, PacketOptions::default())).expect("opens");
        let mut east =
            at("east", || PacketPort::open_for("east", STREAM_ETHERTYPE, PacketOptions::default())).expect("opens");
        let head = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &STREAM_ETHERTYPE.to_be_bytes()].concat();
        let mut sent = 0;
        bridge.run_until(|| {
            west.transmit(&[&head[..], &[0; 46]].concat()).expect("sends");
            sent += 1;
            pause(Nanos::millis(1));
            east.receive(&mut [0; 100]).expect("receives").is_some()
        });
        assert!(
            bridge
                .left
                .news()
                .expect("is ours")
                .is_some_and(|news| news.contains("frames that were redirected to right"))
        );
        assert!((1..100).contains(&sent) && bridge.left.local_drops() < sent, "{sent}");
        tcp(&mut bridge, FOUR, 1_000_000);
    });
}
