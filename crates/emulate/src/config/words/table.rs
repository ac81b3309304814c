//! The table of all words: the parser of each, where a configuration file may use it as a key, and its option on the command line.
//!
//! An option consists of one line here, a field of the pipe, its effect in the engine, and its words in
//! [`print`](super::print). Options of a command line are shown and applied in the order of this table, in whatever
//! order they were given. An option that refines another one therefore follows it: `overhead` follows `rate`, whose
//! arguments may include an overhead.

use Key::{Impairment, Pipe, Queue, Text, Unlisted};
use sojourn_time::near::nearest;

use super::{Draft, Words, delay, impair, link, queue};

/// A word.
pub(in crate::config) struct Word {
    pub word: &'static str,
    pub key: Key,
    /// Whether it applies to a class after `class NAME`. Every other word ends the class.
    pub is_of_class: bool,
    pub read: Reader,
    pub option: Option<PipeOption>,
}

/// Parses the arguments of a word, which is passed along, into a draft.
type Reader = fn(&mut Draft, &str, &mut Words) -> Result<(), String>;

/// Where a configuration file may use a word as a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Key {
    /// Nowhere, and it is never suggested: another spelling, or a word without effect.
    Unlisted,
    /// Nowhere: it has a meaning only among other words.
    Text,
    /// In a pipe.
    Pipe,
    /// In a pipe, and in its table `after`.
    Impairment,
    /// In a pipe, and in its classes.
    Queue,
}

/// A word as a command-line option, whose argument is the word's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeOption {
    /// The option's name, which is the word.
    pub word: &'static str,
    /// The name of its argument in help.
    pub value_name: &'static str,
    /// Its help, one sentence.
    pub help: &'static str,
    /// Whether its argument may begin with a hyphen: a negative number, which is then refused with a proper message.
    pub takes_hyphen: bool,
    /// Whether it may be given several times.
    pub is_repeated: bool,
}

/// Returns whether a pipe's words may begin with this one.
pub fn is_word(word: &str) -> bool {
    WORDS.iter().any(|known| known.word == word)
}

/// Returns the known word that is most similar to a mistyped one, if any is.
pub fn nearest_word(word: &str) -> Option<&'static str> {
    nearest(word, &words_of(|_| true))
}

/// Returns the options of a pipe, in the order in which they are shown and applied.
pub fn pipe_options() -> impl Iterator<Item = PipeOption> {
    WORDS.iter().filter_map(|word| word.option)
}

#[rustfmt::skip]
pub(super) const WORDS: &[Word] = &[
    word("delay", Pipe, delay::delay).number("SPAN", "Constant delay: 20ms"),
    word("latency", Unlisted, delay::delay),
    word("jitter", Pipe, delay::jitter).number("SPAN", "Size of the random part of the delay: 2ms"),
    word("distribution", Pipe, delay::distribution).option("SHAPE", "Distribution of the random part: uniform, normal, exponential, gamma SHAPE, lomax SHAPE, pareto, paretonormal, ecdf FILE, or an iproute2 .dist file"),
    word("ecdf", Pipe, delay::ecdf),
    word("half-life", Pipe, delay::half_life).number("SPAN", "Correlation in time: after this time half of a delay's deviation is left"),
    word("order", Pipe, delay::order).option("ORDER", "Whether packets may overtake: kept, free"),
    word("reorder", Pipe, delay::reorder).number("CHOICE", "Let packets chosen at random overtake others: 1%, \"25% gap 5\", \"1% by 5ms\""),
    word("port-delay", Pipe, delay::port_delay).numbers("PORTS SPAN", "Constant delay of packets that come from or go to these ports, in place of the others': \"5001-5010 40ms\"; may be repeated"),
    word("gap", Text, |_, _, _| Err("gap belongs behind reorder: \"reorder 25% gap 5\"".to_owned())),

    word("before", Text, impair::before),
    word("after", Text, impair::after),
    word("loss", Impairment, impair::loss).numbers("LOSS", "Lose packets: 1%, \"burst 1% 3\", \"gemodel 1% 10%\", \"every 100\", \"syn 1\", \"segment 3\", \"pattern FILE\"; may be repeated"),
    word("loss-after", Unlisted, impair::loss_after).numbers("LOSS", "Lose packets behind the link, where they have used its bandwidth; may be repeated"),
    word("plr", Impairment, impair::plr),
    word("drop", Pipe, queue::drop),
    word("corrupt", Impairment, impair::corrupt).number("SHARE", "Flip one bit in this share of packets: 0.1%"),
    word("ber", Impairment, impair::ber).number("P", "Flip each bit with this probability: 1e-6"),
    word("duplicate", Impairment, impair::duplicate).number("SHARE", "Send this share of packets twice: 0.1%"),

    word("rate", Pipe, link::rate).number("RATE", "Rate of the bottleneck link: 10Mbit/s"),
    word("bw", Pipe, link::bandwidth),
    word("bandwidth", Pipe, link::bandwidth),
    word("overhead", Pipe, link::overhead).number("BYTES", "Bytes that the link adds to each frame: 24 for Ethernet's preamble, FCS and gap"),
    word("ethernet", Pipe, link::ethernet),
    word("cell", Pipe, link::cell),
    word("atm", Pipe, link::atm),
    word("burst", Pipe, link::burst).number("SIZE", "Bytes that the link sends at once after idle time: 15KB"),
    word("profile", Pipe, link::profile),

    word("queue", Queue, queue::limit).number("LIMIT", "Limit of the queue before the link, in packets or bytes: 50, 64KB [default: rate × delay, 50 packets at least]"),
    Word { is_of_class: true, ..word("limit", Pipe, queue::limit) },
    word("droptail", Unlisted, queue::droptail),
    word("aqm", Pipe, queue::aqm).option("AQM", "Queue management and scheduler: codel, \"pie target 15ms\", \"red 0.002/5/15/0.1\", fq_codel, dualpi2"),
    word("red", Queue, queue::management),
    word("gred", Queue, queue::management),
    word("codel", Queue, queue::management),
    word("pie", Queue, queue::management),
    word("ecn", Pipe, queue::ecn),
    word("type", Pipe, queue::scheduler_type),
    word("fifo", Text, queue::scheduler),
    word("wf2q+", Unlisted, queue::scheduler),
    word("drr", Pipe, queue::scheduler),
    word("fq_codel", Pipe, queue::scheduler),
    word("fq-codel", Unlisted, queue::scheduler),
    word("dualpi2", Pipe, queue::scheduler),
    word("class", Text, queue::class),
    word("classes", Text, queue::classes),
    word("weight", Text, |_, _, _| Err("weight: weights belong to classes; write \"class NAME weight N\"".to_owned())),

    word("trace", Pipe, link::trace).option("FILE", "Rate, delay and loss over time: a mahimahi file, or a CSV file of time, rate, delay and loss"),
    word("outage", Pipe, link::outage).option("OUTAGE", "When the link sends nothing: \"at 10s for 500ms every 60s\""),

    word("mask", Pipe, queue::mask).option("MASK", "One pipe for each flow: all, \"src-ip 0xffffff00\", \"dst-port 0xffff\""),
    word("flow_mask", Unlisted, queue::mask),
    word("sched_mask", Unlisted, queue::mask),
    word("buckets", Unlisted, |_, word, words| words.whole::<u32>(word, "64").map(drop)),
    word("noerror", Unlisted, |_, _, _| Ok(())),
    word("seed", Unlisted, |_, _, _| Err("seed: the seed is the emulator's, not a pipe's; give it as --seed or beside the pipes in a file".to_owned())),
    word("slot", Unlisted, |_, _, _| Err("slot: netem's slots are not offered; a profile or a trace file says when a medium lets packets go".to_owned())),
];

const fn word(word: &'static str, key: Key, read: Reader) -> Word {
    Word { word, key, is_of_class: matches!(key, Queue), read, option: None }
}

impl Word {
    /// Makes the word a command-line option.
    const fn option(self, value_name: &'static str, help: &'static str) -> Self {
        self.asked(value_name, help, [false, false])
    }

    /// Makes the word an option whose argument is or begins with a number.
    const fn number(self, value_name: &'static str, help: &'static str) -> Self {
        self.asked(value_name, help, [true, false])
    }

    /// Makes the word an option with a number that may be given several times.
    const fn numbers(self, value_name: &'static str, help: &'static str) -> Self {
        self.asked(value_name, help, [true, true])
    }

    const fn asked(self, value_name: &'static str, help: &'static str, [takes_hyphen, is_repeated]: [bool; 2]) -> Self {
        Self { option: Some(PipeOption { word: self.word, value_name, help, takes_hyphen, is_repeated }), ..self }
    }
}

/// Finds a word.
pub(super) fn find(word: &str) -> Option<&'static Word> {
    WORDS.iter().find(|known| known.word == word)
}

/// Returns the words of some kinds, sorted, except unlisted ones.
pub(in crate::config) fn words_of(of: impl Fn(Key) -> bool) -> Vec<&'static str> {
    let listed = WORDS.iter().filter(|word| word.key != Unlisted && of(word.key));
    let mut words: Vec<_> = listed.map(|word| word.word).collect();
    words.sort_unstable();
    words
}
