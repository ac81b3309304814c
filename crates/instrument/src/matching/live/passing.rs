//! Passes the packets of open taps to the pairs in time order, as soon as no earlier packet can follow.
//!
//! A tap delivers its frames block by block, so one tap may be ahead of another. A packet is passed on when each other
//! tap has delivered a later one, or everything up to that time. Opens nothing, reads no clock.

use sojourn_record::tap::Tapped;

use super::super::hand_on;
use super::super::input::Input;
use super::super::packet::Packet;
use super::super::pair::{self, Pair};

/// The maximum time between a frame's timestamp and its count by the tap: the interface or the driver takes the
/// timestamp, and the CPU may be preempted after that. ns.
const SLACK: i64 = 20_000_000;

/// The packets of open taps.
pub struct Passing {
    inputs: Vec<Input>,
    pairs: Vec<Pair>,
    /// The time up to which each tap has delivered everything. ns.
    shown: Vec<i64>,
    /// The time up to which the pairs have received everything. ns.
    passed: i64,
    /// The times from which and until which all taps are open. ns.
    open: [i64; 2],
    outside: u64,
    late: u64,
}

impl Passing {
    /// Creates it for taps in the order of the path, all of them open from `from` on.
    pub fn new(inputs: Vec<Input>, from: i64) -> Self {
        let shown = vec![i64::MIN; inputs.len()];
        Self { inputs, pairs: Vec::new(), shown, passed: i64::MIN, open: [from, i64::MAX], outside: 0, late: 0 }
    }

    /// Adds the frames that a tap delivered; `all_until`, if known, is the time up to which they are complete.
    pub fn take(&mut self, place: usize, rows: impl Iterator<Item = Tapped>, all_until: Option<i64>) {
        let [from, until] = self.open;
        for row in rows {
            if (from..until).contains(&row.at.at.0) {
                match self.inputs[place].show(&row, self.shown[place]) {
                    Some(is_late) => self.late += u64::from(is_late),
                    None => self.shown[place] = self.shown[place].max(row.at.at.0 - SLACK),
                }
            } else {
                self.outside += 1;
            }
        }
        if let Some(until) = all_until {
            self.shown[place] = self.shown[place].max(until - SLACK);
        }
    }

    /// Sets the time until which all taps are open; later packets are left out.
    pub fn close(&mut self, until: i64) {
        self.open[1] = until;
    }

    /// Returns the taps' inputs, with their counters.
    pub fn inputs(&mut self) -> &mut Vec<Input> {
        &mut self.inputs
    }

    /// Returns the pairs; empty while the direction of packets is unknown.
    pub fn pairs(&mut self) -> &mut Vec<Pair> {
        &mut self.pairs
    }

    /// Returns inputs and pairs.
    pub fn parts(&mut self) -> (&mut [Input], &mut [Pair]) {
        (&mut self.inputs, &mut self.pairs)
    }

    /// Whether packets wait for another tap.
    pub fn waits(&self) -> bool {
        self.inputs.iter().any(|input| !input.begun().is_empty())
    }

    /// Whether a packet from before a time waits.
    pub fn waits_since(&self, before: i64) -> bool {
        self.inputs.iter().filter_map(Input::next_at).any(|at| at < before)
    }

    /// Whether so many packets of one tap wait.
    pub fn holds(&self, most: usize) -> bool {
        self.inputs.iter().any(|input| input.begun().len() >= most)
    }

    /// Whether neighbouring taps have enough packets in common to detect their direction.
    pub fn has_common(&self) -> bool {
        self.inputs.iter().zip(&self.inputs[1..]).all(|(first, second)| pair::offset(first, second).is_some())
    }

    /// Passes on every packet that no earlier one can precede; calls `each` with the pairs after every packet.
    ///
    /// # Errors
    /// If `each` fails.
    pub fn go_on(&mut self, mut each: impl FnMut(&mut [Pair]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        while let Some(place) = self.next() {
            let Self { inputs, pairs, passed, .. } = self;
            inputs[place].take(|packet| {
                // A late packet gets the latest time so far.
                *passed = packet.at.max(*passed);
                hand_on(pairs, place, &Packet { at: *passed, ..*packet });
            });
            each(pairs)?;
        }
        let known = self.inputs.iter().zip(&self.shown).map(|(input, shown)| input.next_at().unwrap_or(*shown)).min();
        if let Some(known) = known.filter(|known| *known > self.passed) {
            self.passed = known;
            self.pairs.iter_mut().for_each(|pair| pair.advance(known));
        }
        Ok(())
    }

    /// Returns the tap with the next packet, if that is certain.
    fn next(&self) -> Option<usize> {
        let next = self.inputs.iter().enumerate().filter_map(|(place, input)| Some((place, input.next_at()?)));
        let (place, at) = next.min_by_key(|(_, at)| *at)?;
        let is_certain = |(input, shown): (&Input, &i64)| !input.begun().is_empty() || *shown > at;
        self.inputs.iter().zip(&self.shown).all(is_certain).then_some(place)
    }

    /// Passes on all remaining packets and ends the pairs: the taps have delivered everything.
    ///
    /// # Errors
    /// As [`Self::go_on`].
    pub fn end(&mut self, each: impl FnMut(&mut [Pair]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.shown.fill(self.open[1]);
        self.go_on(each)?;
        self.pairs.iter_mut().for_each(Pair::end);
        Ok(())
    }

    /// Returns the number of packets that passed while taps were attached or detached; they are left out.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Returns the number of packets that arrived after later ones had been passed on.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sojourn_matcher::{Limits, Way};
    use sojourn_record::TapAbout;
    use sojourn_record::tap::Crossing;
    use sojourn_time::{Source, Stamp, Time};

    use super::super::super::arguments::Direction;
    use super::super::super::pair::Terms;
    use super::*;

    const MS: i64 = 1_000_000;
    const WINDOW: i64 = 50 * MS;

    fn row(at: i64, digest: u64, direction: &'static str) -> Tapped {
        Tapped {
            at: Stamp { at: Time(at), source: Source::Kernel },
            digest: Some(digest),
            length_bytes: 60,
            direction: Some(direction),
            is_fragment: false,
            is_super_packet: false,
            is_truncated: false,
        }
    }

    fn taps() -> Passing {
        let about = |tap: &str| TapAbout {
            tap: tap.to_owned(),
            interface: tap.to_owned(),
            host: String::new(),
            key: "bridge".to_owned(),
            most: None,
            clock_id: 1,
        };
        Passing::new(["left", "right"].map(|tap| Input::open(about(tap))).into(), 0)
    }

    /// Starts matching, once a tap has delivered a frame.
    fn begin(passing: &mut Passing) {
        let terms = Terms {
            number: 0,
            limits: Limits { window: WINDOW, ahead: 1, memory: 64 << 20 },
            direction: Direction::Auto,
            aligned: (0, 0),
            is_apart_known: true,
            is_one_clock: true,
            keeps_rows: true,
            slices: None,
        };
        if passing.pairs().is_empty() && passing.waits() {
            let (inputs, _) = passing.parts();
            let pair = Pair::new(terms, &inputs[0], &inputs[1]);
            passing.pairs().push(pair);
        }
    }

    fn go_on(passing: &mut Passing) {
        begin(passing);
        passing.go_on(|_| Ok(())).expect("nothing is written");
    }

    /// Matches in order, unmatched packets and whether each is unexpected, frames seen per direction, late packets.
    type Told = (Vec<Crossing>, Vec<(u64, bool)>, [u64; 2], u64);

    /// Returns all outcomes, after the end.
    fn told(mut passing: Passing, until: i64) -> Told {
        passing.close(until);
        begin(&mut passing);
        passing.end(|_| Ok(())).expect("nothing is written");
        let late = passing.late();
        let pair = passing.pairs().remove(0);
        let seen = [Way::Forward, Way::Backward].map(|way| {
            let counts = pair.counts(way);
            assert_eq!(counts.seen_first, counts.matched + counts.lost + counts.pending);
            assert_eq!(counts.seen_second, counts.matched + counts.duplicated + counts.unexpected);
            assert_eq!(counts.lost_at_end, 0, "the taps were open");
            counts.seen_first + counts.seen_second
        });
        let left = pair.unmatched.iter().map(|row| (row.digest, row.outcome == "unexpected"));
        let mut left: Vec<(u64, bool)> = left.collect();
        left.sort_unstable();
        let mut crossings = pair.crossings;
        crossings.sort_by_key(|row| (row.direction, row.number));
        (crossings, left, seen, late)
    }

    /// Returns what each tap sees, in its order, of packets in both directions through a device.
    fn seen(packets: &[(i64, i64, bool, u8)]) -> [Vec<Tapped>; 2] {
        let (mut taps, mut at) = ([Vec::new(), Vec::new()], 0);
        for (number, (gap, delay, is_forward, fate)) in packets.iter().enumerate() {
            at += gap;
            let (first, second) = if *is_forward { (0, 1) } else { (1, 0) };
            // Of 16 packets, one is lost and one is unexpected.
            if *fate != 1 {
                taps[first].push(row(at, number as u64, "in"));
            }
            if *fate != 0 {
                taps[second].push(row(at + delay, number as u64, "out"));
            }
        }
        taps.iter_mut().for_each(|rows| rows.sort_by_key(|row| row.at.at));
        taps
    }

    proptest! {
        #[test]
        fn live_matching_in_any_blocks_equals_matching_all_packets_at_once(
            packets in proptest::collection::vec((0..8 * MS, 1..30 * MS, any::<bool>(), 0_u8..16), 1..200),
            steps in proptest::collection::vec((1..30 * MS, 0..40 * MS, 0..40 * MS), 400..401),
        ) {
            let rows = seen(&packets);
            let last = rows.iter().flatten().map(|row| row.at.at.0).max().unwrap_or(0) + 1;
            let (mut whole, mut blocks) = (taps(), taps());
            for (place, rows) in rows.iter().enumerate() {
                whole.take(place, rows.iter().cloned(), None);
            }
            let (mut now, mut shown) = (0, [0, 0]);
            for (step, one, other) in steps {
                now += step;
                for (place, lag) in [one, other].into_iter().enumerate() {
                    // A block is delivered when it is full or old; delivery is complete only sometimes.
                    let until = now - lag;
                    let some = rows[place].iter().skip(shown[place]).take_while(|row| row.at.at.0 <= until).cloned();
                    let some: Vec<Tapped> = some.collect();
                    shown[place] += some.len();
                    let is_all = rows[place].get(shown[place]).is_none_or(|row| row.at.at.0 > now);
                    blocks.take(place, some.into_iter(), is_all.then_some(now));
                }
                go_on(&mut blocks);
            }
            for (place, rows) in rows.iter().enumerate() {
                blocks.take(place, rows[shown[place]..].iter().cloned(), None);
            }
            let (whole, blocks) = (told(whole, last), told(blocks, last));
            prop_assert_eq!(blocks.3, 0);
            prop_assert_eq!(whole, blocks);
        }
    }

    #[test]
    fn loss_is_reported_also_when_no_later_packet_arrives() {
        let mut passing = taps();
        passing.take(0, [row(MS, 7, "in")].into_iter(), Some(3 * WINDOW));
        go_on(&mut passing);
        assert!(passing.waits(), "the other tap may still show it");
        passing.take(1, [].into_iter(), Some(3 * WINDOW));
        go_on(&mut passing);
        assert!(!passing.waits());
        let counts = passing.pairs()[0].counts(Way::Forward);
        assert_eq!((counts.lost, counts.lost_at_end, counts.pending), (1, 0, 0));
    }

    #[test]
    fn loss_within_a_batch_longer_than_the_window_is_not_counted_as_loss_at_the_end() {
        let mut passing = taps();
        let lost = (1..=20).map(|number| row(number * WINDOW / 2, number.unsigned_abs(), "in"));
        passing.take(0, lost, Some(20 * WINDOW));
        passing.take(1, [].into_iter(), Some(20 * WINDOW));
        go_on(&mut passing);
        let counts = passing.pairs()[0].counts(Way::Forward);
        assert_eq!((counts.lost, counts.lost_at_end), (20, 0));
    }

    #[test]
    fn tap_that_sees_only_unmatchable_packets_does_not_delay_matching() {
        let mut passing = taps();
        passing.take(0, [row(MS, 7, "in")].into_iter(), Some(3 * WINDOW));
        go_on(&mut passing);
        assert!(passing.waits());
        passing.take(1, [Tapped { digest: None, ..row(3 * WINDOW, 0, "out") }].into_iter(), None);
        go_on(&mut passing);
        assert!(!passing.waits());
    }

    #[test]
    fn packet_delivered_late_is_counted_and_matched_within_its_window() {
        let mut passing = taps();
        passing.take(0, [row(MS, 7, "in")].into_iter(), Some(40 * MS));
        passing.take(1, [].into_iter(), Some(40 * MS));
        go_on(&mut passing);
        passing.take(1, [row(2 * MS, 7, "out")].into_iter(), Some(41 * MS));
        let (crossings, left, _, late) = told(passing, 42 * MS);
        assert_eq!((crossings.len(), left.len(), late), (1, 0, 1));
        assert_eq!(crossings[0].delay.0, MS);
    }

    #[test]
    fn packets_outside_the_time_in_which_all_taps_are_open_are_ignored() {
        let mut passing = taps();
        passing.open[0] = 5 * MS;
        passing.take(0, [row(4 * MS, 1, "in"), row(6 * MS, 2, "in")].into_iter(), None);
        passing.close(9 * MS);
        passing.take(1, [row(7 * MS, 2, "out"), row(9 * MS, 3, "out")].into_iter(), None);
        assert_eq!(passing.outside(), 2);
        let (crossings, left, seen, _) = told(passing, 9 * MS);
        assert_eq!((crossings.len(), left.len(), seen), (1, 0, [2, 0]));
    }
}
