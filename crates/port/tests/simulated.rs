//! Runs the suite over the simulated link.

mod suite;

use sojourn_port::sim::{Line, Sim};
use sojourn_time::{SimulatedClock, Source};
use sojourn_wire::Carrier;

use suite::frames::{self, Frames};

#[test]
fn the_simulated_line_passes_the_suite() {
    for (carrier, frames) in [
        (Carrier::Icmp4, frames::ICMP4),
        (Carrier::Icmp6, frames::ICMP6),
        (Carrier::Udp4, frames::UDP),
        (Carrier::Ethernet, frames::ETHERNET),
    ] {
        let clock = SimulatedClock::default();
        let port = Sim::new(&clock, &Line::constant(5_000, 7_000), carrier).expect("a line");
        let Frames { request, sequence, lengths } = frames;
        let clock = Box::new(clock);
        suite::run(suite::Bench {
            port,
            clock,
            request,
            sequence,
            lengths,
            answer: Box::new(|| {}),
            source: Source::Simulated,
        });
    }
}
