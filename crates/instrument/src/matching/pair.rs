//! Two neighbouring taps: the direction of their packets, the outcomes, and the results kept.

use serde_json::{Value, json};
use sojourn_matcher::sample::{Delay, Sample};
use sojourn_matcher::{Counts, Limits, Matcher, Observed, Outcome, Seen, Sides, Tap, Way, offset_between};
use sojourn_port::pcap::Direction;
use sojourn_record::tap::{Crossing, Unmatched};
use sojourn_time::{Nanos, Time};

use super::arguments;
use super::clocks::{Clocks, Quickest};
use super::divided::Divided;
use super::input::Input;
use super::packet::{Note, Packet};

/// The maximum number of delays kept per direction; beyond it, a random sample is kept.
pub const KEPT: usize = 1 << 18;

const DIRECTIONS: [&str; 2] = ["forward", "backward"];

/// How the direction of a packet is determined.
#[derive(Debug)]
enum Rule {
    Always(Way),
    /// By the captured direction: for packets that enter the device at its first port or leave it at its second, and
    /// for the others.
    Labels([Way; 2]),
    /// By endpoints, whose side each tap has learned.
    Endpoints([Known; 2]),
}

/// On which side of a tap its endpoints are. The latest lookup is cached, because packets arrive in trains.
#[derive(Debug)]
struct Known {
    sides: Sides,
    latest: Option<((u64, u64), Option<Way>)>,
}

impl Known {
    fn way(&mut self, endpoints: (u64, u64)) -> Option<Way> {
        match self.latest {
            Some((known, way)) if known == endpoints => way,
            _ => self.latest.insert((endpoints, self.sides.known(endpoints))).1,
        }
    }
}

/// The outcomes of the packets of one direction, besides the counters.
#[derive(Debug)]
pub struct Told {
    pub sample: Sample,
    pub loss_runs: u64,
    pub lost_fragments: u64,
    pub lost_super: u64,
    /// Among pending and evicted packets.
    pub pending_fragments: u64,
    pub pending_super: u64,
    pub unexpected_fragments: u64,
    pub unexpected_super: u64,
    /// Matches whose two timestamps were taken at different points (such as driver and interface).
    pub mixed_timestamps: u64,
    was_lost: bool,
}

/// The matcher.
#[derive(Debug)]
enum Engine {
    One(Box<Matcher>),
    Divided(Box<Divided>),
}

impl Engine {
    #[inline]
    fn push(&mut self, tap: Tap, way: Way, seen: &Observed, sink: &mut impl FnMut(Way, Outcome)) {
        match self {
            Self::One(matcher) => matcher.push(tap, way, seen, sink),
            Self::Divided(matcher) => matcher.push(tap, way, seen, sink),
        }
    }

    fn end(&mut self, sink: &mut impl FnMut(Way, Outcome)) {
        match self {
            Self::One(matcher) => matcher.end(sink),
            Self::Divided(matcher) => matcher.end(sink),
        }
    }

    fn counts(&self, way: Way) -> Counts {
        match self {
            Self::One(matcher) => matcher.counts(way),
            Self::Divided(matcher) => matcher.counts(way),
        }
    }
}

/// Two neighbouring taps.
#[derive(Debug)]
pub struct Pair {
    number: u32,
    limits: Limits,
    matcher: Engine,
    rule: Rule,
    /// The number of packets of unknown direction: they count as forward.
    assumed: u64,
    /// The offset subtracted from the times of each tap to align the clocks. ns.
    aligned: (i64, i64),
    is_apart_known: bool,
    /// Only for two clocks.
    quickest: Option<Quickest>,
    told: [Told; 2],
    keeps_rows: bool,
    pub crossings: Vec<Crossing>,
    pub unmatched: Vec<Unmatched>,
}

/// The parameters of a pair.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub number: u32,
    pub limits: Limits,
    pub direction: arguments::Direction,
    /// The offset subtracted from the times of each tap. ns.
    pub aligned: (i64, i64),
    /// Whether the packets read ahead determined the clock offset.
    pub is_apart_known: bool,
    pub is_one_clock: bool,
    pub keeps_rows: bool,
    /// The number of CPUs over which packets are divided; `None`: a single matcher.
    pub slices: Option<usize>,
}

impl Pair {
    /// Creates a pair from what both taps read ahead.
    pub fn new(terms: Terms, first: &Input, second: &Input) -> Self {
        let rule = match terms.direction {
            arguments::Direction::Forward => Rule::Always(Way::Forward),
            arguments::Direction::Backward => Rule::Always(Way::Backward),
            arguments::Direction::Auto => Rule::learn(first, second, terms.is_one_clock),
        };
        let ways = if matches!(rule, Rule::Always(_)) { 1 } else { 2 };
        Self {
            number: terms.number,
            limits: terms.limits,
            matcher: match terms.slices {
                Some(slices) => Engine::Divided(Box::new(Divided::new(terms.limits, ways, slices))),
                None => Engine::One(Box::new(Matcher::new(terms.limits, ways))),
            },
            rule,
            assumed: 0,
            aligned: terms.aligned,
            is_apart_known: terms.is_apart_known,
            quickest: (!terms.is_one_clock).then(Quickest::new),
            told: [Told::new(), Told::new()],
            keeps_rows: terms.keeps_rows,
            crossings: Vec::new(),
            unmatched: Vec::new(),
        }
    }

    /// Adds a packet of one of the taps.
    #[inline]
    pub fn push(&mut self, tap: Tap, packet: &Packet) {
        let off = if tap == Tap::First { self.aligned.0 } else { self.aligned.1 };
        let way = self.rule.way(tap, packet);
        self.assumed += u64::from(way.is_none());
        let way = way.unwrap_or_default();
        let seen = Observed {
            at: packet.at.saturating_sub(off),
            time: packet.time.saturating_sub(off),
            digest: packet.digest,
            length: packet.length,
            note: packet.note.0,
        };
        let (matcher, mut sink) = self.parts();
        matcher.push(tap, way, &seen, &mut |way, outcome| sink.take(way, outcome));
    }

    /// Decides the remaining packets.
    pub fn end(&mut self) {
        let (matcher, mut sink) = self.parts();
        matcher.end(&mut |way, outcome| sink.take(way, outcome));
    }

    /// Advances the time: both taps, which share a clock, have delivered everything up to it, and continue.
    pub fn advance(&mut self, to: i64) {
        let (matcher, mut sink) = self.parts();
        if let Engine::One(matcher) = matcher {
            matcher.advance(to, &mut |way, outcome| sink.take(way, outcome));
        }
    }

    fn parts(&mut self) -> (&mut Engine, Sink<'_>) {
        let Self { matcher, number, aligned, quickest, told, crossings, unmatched, keeps_rows, .. } = self;
        let quickest = quickest.as_mut();
        let (number, aligned, keeps) = (*number, *aligned, *keeps_rows);
        (matcher, Sink { number, aligned, quickest, told, crossings, unmatched, keeps })
    }

    pub fn counts(&self, way: Way) -> Counts {
        self.matcher.counts(way)
    }

    pub fn told(&self, way: Way) -> &Told {
        &self.told[place(way)]
    }

    /// Returns the relation of the two clocks, by which delays are corrected.
    pub fn clocks(&self) -> Clocks {
        let Some(quickest) = &self.quickest else { return Clocks::One };
        quickest.estimate().map_or(Clocks::Unknown, |estimate| Clocks::Two(Box::new(estimate)))
    }

    /// Returns the offset by which the clocks were aligned before matching.
    pub fn alignment(&self) -> i64 {
        self.aligned.1.saturating_sub(self.aligned.0)
    }

    /// Whether that offset is known.
    pub fn is_alignment_known(&self) -> bool {
        self.is_apart_known
    }

    /// Returns the number of packets, at either tap, of unknown direction.
    pub fn assumed(&self) -> u64 {
        self.assumed
    }

    /// Returns the matching parameters, for a program that divides the work: its records contain no endpoints.
    pub fn terms(&self) -> Value {
        let name = |way: Way| DIRECTIONS[place(way)];
        let (along, against, unlabelled, assumed) = match &self.rule {
            Rule::Always(way) => (*way, *way, *way, "none"),
            Rule::Labels([along, against]) => (*along, *against, Way::Forward, "unlabelled"),
            Rule::Endpoints(_) => (Way::Forward, Way::Forward, Way::Forward, "all"),
        };
        json!({
            "window_ns": self.limits.window,
            "ahead_ns": self.limits.ahead,
            "memory_bytes": self.limits.memory,
            "aligned_ns": [self.aligned.0, self.aligned.1],
            "is_alignment_known": self.is_apart_known,
            "is_one_clock": self.quickest.is_none(),
            "direction_rule": self.rule(),
            "is_always": matches!(self.rule, Rule::Always(_)),
            "along": name(along),
            "against": name(against),
            "unlabelled": name(unlabelled),
            "assumed": assumed,
        })
    }

    /// Returns how the direction of packets is determined.
    pub fn rule(&self) -> &'static str {
        match &self.rule {
            Rule::Always(Way::Forward) => "all forward",
            Rule::Always(Way::Backward) => "all backward",
            Rule::Labels(_) => "as the taps say",
            Rule::Endpoints(..) => "by who answers whom",
        }
    }
}

impl Rule {
    fn learn(first: &Input, second: &Input, is_one_clock: bool) -> Self {
        let begun = || first.begun().iter().chain(second.begun());
        if begun().next().is_some() && begun().all(|packet| packet.direction.is_some()) {
            let seen = |tap, input| seen(input, |packet| labels(tap, packet));
            let [sides, _] = Sides::of(&seen(Tap::First, first), &seen(Tap::Second, second), is_one_clock);
            // If nothing else is known, the taps count as the device's own ports.
            let way = |endpoints, otherwise| sides.known(endpoints).unwrap_or(otherwise);
            return Self::Labels([way(ALONG, Way::Forward), way((ALONG.1, ALONG.0), Way::Backward)]);
        }
        let seen = |input| seen(input, |packet| packet.endpoints);
        let sides = Sides::of(&seen(first), &seen(second), is_one_clock);
        Self::Endpoints(sides.map(|sides| Known { sides, latest: None }))
    }

    #[inline]
    fn way(&mut self, tap: Tap, packet: &Packet) -> Option<Way> {
        match self {
            Self::Always(way) => Some(*way),
            Self::Labels(ways) => labels(tap, packet).map(|endpoints| ways[usize::from(endpoints != ALONG)]),
            Self::Endpoints(taps) => taps[usize::from(tap == Tap::Second)].way(packet.endpoints?),
        }
    }
}

/// The direction from the first tap's side to the second's, as a pair of endpoints.
const ALONG: (u64, u64) = (1, 2);

/// Maps the captured direction to endpoints: a packet that enters the device at its first port, or leaves it at its
/// second, goes from 1 to 2.
fn labels(tap: Tap, packet: &Packet) -> Option<(u64, u64)> {
    let goes_in = packet.direction? == Direction::In;
    Some(if goes_in == (tap == Tap::First) { ALONG } else { (ALONG.1, ALONG.0) })
}

fn seen(input: &Input, endpoints: impl Fn(&Packet) -> Option<(u64, u64)>) -> Vec<Seen> {
    let of = |packet: &Packet| Seen {
        time: packet.time,
        digest: packet.digest,
        endpoints: endpoints(packet).unwrap_or_default(),
    };
    input.begun().iter().map(of).collect()
}

/// Returns the offset of the second tap's clock from the first's, plus a delay; `None` if the taps have too few packets in common.
pub fn offset(first: &Input, second: &Input) -> Option<i64> {
    offset_between(&seen(first, |_| None), &seen(second, |_| None))
}

const fn place(way: Way) -> usize {
    match way {
        Way::Forward => 0,
        Way::Backward => 1,
    }
}

impl Told {
    fn new() -> Self {
        Self {
            sample: Sample::new(KEPT),
            loss_runs: 0,
            lost_fragments: 0,
            lost_super: 0,
            pending_fragments: 0,
            pending_super: 0,
            unexpected_fragments: 0,
            unexpected_super: 0,
            mixed_timestamps: 0,
            was_lost: false,
        }
    }

    fn count_pending(&mut self, note: Note) {
        self.pending_fragments += u64::from(note.is_fragment());
        self.pending_super += u64::from(note.is_super());
    }
}

/// The receiver of outcomes.
struct Sink<'a> {
    number: u32,
    aligned: (i64, i64),
    quickest: Option<&'a mut Quickest>,
    told: &'a mut [Told; 2],
    crossings: &'a mut Vec<Crossing>,
    unmatched: &'a mut Vec<Unmatched>,
    keeps: bool,
}

impl Sink<'_> {
    #[inline]
    fn take(&mut self, way: Way, outcome: Outcome) {
        // The offsets to add again to the times of the tap at ingress and of the other.
        let (here, there) = match way {
            Way::Forward => self.aligned,
            Way::Backward => (self.aligned.1, self.aligned.0),
        };
        let told = &mut self.told[place(way)];
        match outcome {
            Outcome::Matched { seen, number, second, second_note, is_ambiguous, extent } => {
                told.was_lost = false;
                told.mixed_timestamps += u64::from(Note(seen.note).differs(Note(second_note)));
                let (from, until) = (seen.time + here, second + there);
                let delay = until - from;
                told.sample.push(Delay { first: from, delay, length: seen.length, is_ambiguous });
                if let (false, Some(quickest)) = (is_ambiguous, &mut self.quickest) {
                    let (first, second) = if way == Way::Forward { (from, until) } else { (until, from) };
                    quickest.push(way, first, second);
                }
                if self.keeps {
                    self.crossings.push(Crossing {
                        pair: self.number,
                        direction: DIRECTIONS[place(way)],
                        number,
                        first: Time(from),
                        first_source: Note(seen.note).source(),
                        second_source: Note(second_note).source(),
                        delay: Nanos(delay),
                        length_bytes: seen.length,
                        is_ambiguous,
                        reordering_extent: (extent > 0).then_some(extent),
                    });
                }
            }
            Outcome::Lost { seen, .. } => {
                told.loss_runs += u64::from(!told.was_lost);
                told.was_lost = true;
                told.lost_fragments += u64::from(Note(seen.note).is_fragment());
                told.lost_super += u64::from(Note(seen.note).is_super());
                self.keep(way, "lost", &seen, here);
            }
            Outcome::Evicted { seen, .. } => {
                told.count_pending(Note(seen.note));
                self.keep(way, "evicted", &seen, here);
            }
            Outcome::Pending { seen, .. } => {
                told.count_pending(Note(seen.note));
                self.keep(way, "pending", &seen, here);
            }
            Outcome::Duplicated(seen) => self.keep(way, "duplicated", &seen, there),
            Outcome::Unexpected(seen) => {
                told.unexpected_fragments += u64::from(Note(seen.note).is_fragment());
                told.unexpected_super += u64::from(Note(seen.note).is_super());
                self.keep(way, "unexpected", &seen, there);
            }
        }
    }

    fn keep(&mut self, way: Way, outcome: &'static str, seen: &Observed, off: i64) {
        if self.keeps {
            self.unmatched.push(Unmatched {
                pair: self.number,
                direction: DIRECTIONS[place(way)],
                time: Time(seen.time + off),
                time_source: Note(seen.note).source(),
                length_bytes: seen.length,
                digest: seen.digest,
                outcome,
            });
        }
    }
}
