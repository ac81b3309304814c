//! The suite that every pair of bridge ports passes, over a simulated cable and over the kernel's.

use sojourn_port::bridge::BridgePort;
use sojourn_port::kernel::wait_for_any;
use sojourn_time::{Nanos, Source};

/// Two ports and the two hosts at their far ends.
pub trait Twin {
    /// The ports, left and right.
    fn ports(&mut self) -> [&mut dyn BridgePort; 2];
    /// Sends a frame from the host at this side.
    fn send(&mut self, side: usize, frame: &[u8]);
    /// Receives the frames that have reached the host at this side.
    fn take(&mut self, side: usize) -> Vec<Vec<u8>>;
    /// The timestamp source.
    fn source(&self) -> Source;
    /// Gives frames time to arrive.
    fn wait_for_frames(&mut self);

    /// Bridges waiting frames in both directions until no more arrive; returns their number.
    fn bridge(&mut self) -> usize {
        let mut total = 0;
        loop {
            self.wait_for_frames();
            let [left, right] = self.ports();
            let count = carry(left, right) + carry(right, left);
            if count == 0 {
                return total;
            }
            total += count;
            self.wait_for_frames();
        }
    }
}

/// Moves the waiting frames from one port to the other.
pub fn carry(from: &mut dyn BridgePort, to: &mut dyn BridgePort) -> usize {
    let mut refused = 0;
    let count =
        from.receive(64, &mut |frame, _| refused += usize::from(!to.put(frame).expect("puts"))).expect("receives");
    to.flush().expect("flushes");
    assert_eq!(refused, 0, "there is room for one batch");
    count
}

/// Runs the whole suite.
pub fn run(twin: &mut dyn Twin) {
    nothing_comes_of_nothing(twin);
    every_frame_passes_as_it_is(twin);
    stamps_are_in_order(twin);
    no_more_than_asked_for_is_shown(twin);
    a_burst_keeps_its_order(twin);
    more_than_a_ring_holds_may_be_put(twin);
    what_is_too_long_has_no_room(twin);
    a_descriptor_wakes_who_waits(twin);
    for port in twin.ports() {
        assert_eq!(port.local_drops(), 0, "{}", port.name());
    }
}

/// Builds a frame of this length, filled with a number.
pub fn frame(head: &[u8], bytes: usize, number: u8) -> Vec<u8> {
    let mut frame = head.to_vec();
    frame.resize(bytes.max(head.len()), number);
    frame
}

const UNICAST: &[u8] = &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];

fn nothing_comes_of_nothing(twin: &mut dyn Twin) {
    for port in twin.ports() {
        let mut shown = 0;
        assert_eq!(port.receive(64, &mut |_, _| shown += 1).expect("receives"), 0);
        assert_eq!(shown, 0);
        port.flush().expect("flushes");
    }
    assert_eq!(twin.bridge(), 0);
}

fn every_frame_passes_as_it_is(twin: &mut dyn Twin) {
    let to = |destination: [u8; 6], rest: &[u8]| [&destination[..], &[2, 0, 0, 0, 0, 1], rest].concat();
    let heads = [
        UNICAST.to_vec(),
        to([0xFF; 6], &[0x88, 0xB5]),
        to([1, 0, 0x5E, 1, 2, 3], &[0x88, 0xB5]),
        // Spanning tree: IEEE 802.2, with a length in place of the EtherType.
        to([1, 0x80, 0xC2, 0, 0, 0], &[0, 38, 0x42, 0x42, 3]),
        to([2, 0, 0, 0, 0, 2], &[0x81, 0, 0x60, 10, 0x88, 0xB5]),
        to([2, 0, 0, 0, 0, 2], &[0x88, 0xA8, 0, 20, 0x81, 0, 0, 10, 0x88, 0xB5]),
    ];
    for head in heads {
        let sent: Vec<_> = [14, 15, 33, 59, 60, 64, 300, 1514]
            .into_iter()
            .filter(|bytes| *bytes >= head.len())
            .zip(1..)
            .map(|(bytes, number)| frame(&head, bytes, number))
            .collect();
        for side in 0..2 {
            for frame in &sent {
                twin.send(side, frame);
            }
        }
        assert_eq!(twin.bridge(), 2 * sent.len(), "{head:x?}");
        for side in 0..2 {
            let arrived = twin.take(side);
            assert!(arrived == sent, "{head:x?}: {:x?} are {:x?}", lengths(&sent), lengths(&arrived));
        }
    }
    let tagged = frame(&to([2, 0, 0, 0, 0, 2], &[0x81, 0, 0, 10, 0x88, 0xB5]), 1518, 7);
    twin.send(0, &tagged);
    twin.bridge();
    assert!(twin.take(1) == [tagged], "a full frame with a tag");
}

fn lengths(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(Vec::len).collect()
}

fn stamps_are_in_order(twin: &mut dyn Twin) {
    for number in 0..20 {
        twin.send(0, &frame(UNICAST, 60, number));
    }
    twin.wait_for_frames();
    let source = twin.source();
    let [left, _] = twin.ports();
    let mut stamps = Vec::new();
    left.receive(64, &mut |_, received| {
        assert_eq!((received.length, received.arrived.source), (60, source));
        assert!(received.arrived.at <= received.returned, "{received:?}");
        assert!(received.returned - received.arrived.at < Nanos::seconds(1), "{received:?}");
        stamps.push(received.arrived.at);
    })
    .expect("receives");
    assert_eq!(stamps.len(), 20);
    assert!(stamps.is_sorted(), "{stamps:?}");
}

fn no_more_than_asked_for_is_shown(twin: &mut dyn Twin) {
    for number in 0..100 {
        twin.send(0, &frame(UNICAST, 60, number));
    }
    twin.wait_for_frames();
    let [left, _] = twin.ports();
    let mut seen = Vec::new();
    for most in [0, 1, 3, 64, 64] {
        let before = seen.len();
        let count = left.receive(most, &mut |frame, _| seen.push(frame[59])).expect("receives");
        assert_eq!(count, seen.len() - before);
        assert!(count <= most);
    }
    assert_eq!(seen, (0..100).collect::<Vec<u8>>());
}

fn a_burst_keeps_its_order(twin: &mut dyn Twin) {
    let sent: Vec<_> =
        (0..1000_u16).map(|n| frame(&[UNICAST, &n.to_be_bytes()].concat(), 60 + usize::from(n) % 1400, 1)).collect();
    for some in sent.chunks(100) {
        for frame in some {
            twin.send(1, frame);
        }
        assert_eq!(twin.bridge(), some.len());
        assert!(twin.take(0) == some);
    }
}

fn more_than_a_ring_holds_may_be_put(twin: &mut dyn Twin) {
    let sent: Vec<_> = (0..3000_u16).map(|number| frame(&[UNICAST, &number.to_be_bytes()].concat(), 60, 1)).collect();
    let mut arrived = Vec::new();
    for some in sent.chunks(500) {
        let [left, _] = twin.ports();
        for frame in some {
            assert!(left.put(frame).expect("puts"));
        }
        twin.wait_for_frames();
        arrived.extend(twin.take(0));
    }
    let [left, _] = twin.ports();
    left.flush().expect("flushes");
    twin.wait_for_frames();
    arrived.extend(twin.take(0));
    assert_eq!(arrived.len(), sent.len());
    assert!(arrived == sent);
}

fn what_is_too_long_has_no_room(twin: &mut dyn Twin) {
    let [left, right] = twin.ports();
    let long = vec![0; left.longest() + 1];
    assert!(!left.put(&long).expect("puts"), "{} bytes on {}", long.len(), right.name());
    let full = frame(UNICAST, 1514, 9);
    assert!(left.put(&full).expect("puts"));
    left.flush().expect("flushes");
    twin.wait_for_frames();
    assert!(twin.take(0) == [full]);
}

fn a_descriptor_wakes_who_waits(twin: &mut dyn Twin) {
    twin.send(1, &frame(UNICAST, 60, 1));
    let [_, right] = twin.ports();
    wait_for_any([right.descriptor()].into_iter(), Nanos::seconds(60)).expect("waits");
    twin.wait_for_frames();
    assert_eq!(twin.bridge(), 1);
    assert_eq!(twin.take(0).len(), 1);
}
