//! Contradictions are refused in one sentence.

use super::*;
use crate::config::{
    Action, Cell, Class, Distribution, Loss, Mask, Match, Outage, Prefix, Rule, Scheduler, Trace, TracePoint,
    pipe_from_words,
};

/// Makes a pipe from words, and lets a test invalidate it.
fn spoilt(words: &str, spoil: impl FnOnce(&mut Pipe)) -> String {
    let base = Pipe { name: "p".to_owned(), ..Pipe::default() };
    let mut pipe = pipe_from_words(words, &base).unwrap();
    spoil(&mut pipe);
    check_pipe(&pipe).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
}

fn of_words(words: &str) -> String {
    spoilt(words, |_| ())
}

#[test]
fn valid_configurations_pass() {
    for words in [
        "",
        "delay 20ms 2ms distribution normal half-life 50ms loss 1% duplicate 0.1% corrupt 0.1% reorder 1% rate 10Mbit/s overhead 24 burst 3000B queue 50 order free",
        "rate 100000000bit/s overhead 24 queue 150000B delay 5000ns",
        "bw 1Mbit/s type wf2q+ class web weight 3 queue 20 class bulk weight 1 codel",
        "rate 1Gbit/s type fq_codel",
        "rate 1Gbit/s type dualpi2 coupling 2",
        "rate 1Mbit/s gred 0.002/5/15/0.1 ecn queue 20",
        "loss state 1% 20% 5% 30% 0.1%",
        "loss gemodel 1% 10% 70% 0.1% after loss every 7 before loss syn 2",
        "outage 1s 100ms every 10s outage 5s 1s",
        "delay 20ms mask src-ip /24 src-port 0xffff most 100",
    ] {
        assert_eq!(of_words(words), "fine", "{words}");
    }
}

#[test]
fn each_contradiction_of_a_link_is_one_sentence() {
    for (words, sentence) in [
        ("rate 0", "pipe p: rate is 0: nothing would ever leave; give a rate, \"rate none\", or an outage"),
        ("rate 101Gbit/s", "pipe p: rate is 101Gbit/s; the fastest is 100Gbit/s"),
        ("overhead 24", "pipe p: an overhead takes no time without a rate; give a rate or leave it out"),
        ("atm", "pipe p: cells take no time without a rate; give a rate or leave them out"),
        ("burst 3000B", "pipe p: a burst needs a rate that it may exceed; give a rate or leave it out"),
        ("rate 1M overhead -60", "pipe p: overhead is -60 bytes; it must be from -59 to 65535"),
        ("rate 1M cell 0 5", "pipe p: a cell of 0 bytes carries nothing; give its bytes, 48 for ATM"),
        ("outage 1s 2s every 2s", "pipe p: an outage of 2s every 2s never ends; let it last less"),
        ("outage 1s 0", "pipe p: how long an outage lasts is 0ns; it must be above 0"),
    ] {
        assert_eq!(of_words(words), sentence);
    }
    let burst = |bytes| spoilt("rate 1M", |pipe| pipe.link.burst_bytes = bytes);
    assert_eq!(burst(1 << 40), "fine");
    for above in [(1 << 40) + 1, u64::MAX] {
        assert_eq!(burst(above), "pipe p: the burst is above 1024GB; give less");
    }
    let before = spoilt("", |pipe| pipe.link.outages.push(Outage { at: Nanos(-1), lasts: Nanos(1), every: None }));
    assert!(before.contains("begins before the start"), "{before}");
    let cell = spoilt("rate 1M", |pipe| pipe.link.cell = Some(Cell { bytes: 48, overhead_bytes: u32::MAX }));
    assert!(cell.contains("above 65535"), "{cell}");
}

#[test]
fn a_trace_that_goes_backwards_is_refused() {
    let points = |times: &[i64]| {
        let points =
            times.iter().map(|at| TracePoint { at: Nanos(*at), rate_bps: Some(1), ..TracePoint::default() }).collect();
        Some(Trace::Points { points, period: None, file: "t".to_owned() })
    };
    let opportunities = |times: &[i64], period| {
        Some(Trace::Opportunities {
            at: times.iter().map(|at| Nanos(*at)).collect(),
            period: Nanos(period),
            file: "t".to_owned(),
        })
    };
    for (trace, sentence) in [
        (points(&[0, 5, 5]), "pipe p: trace t goes backwards; its times must rise"),
        (points(&[1, 5]), "pipe p: trace t must start at 0"),
        (points(&[]), "pipe p: trace t must start at 0"),
        (opportunities(&[3, 2], 5), "pipe p: trace t goes backwards; its times must rise"),
        (opportunities(&[], 5), "pipe p: trace t has no opportunity; nothing would ever leave"),
        (opportunities(&[2], 1), "pipe p: trace t: a round of it must last as long as its last time, and above 0"),
        (opportunities(&[2], 5), "fine"),
        (points(&[0, 5]), "fine"),
    ] {
        assert_eq!(spoilt("", |pipe| pipe.link.trace = trace), sentence);
    }
    let both = spoilt("rate 1M", |pipe| pipe.link.trace = opportunities(&[2], 5));
    assert_eq!(both, "pipe p: a mahimahi trace says itself when packets leave; leave the rate out");
}

#[test]
fn each_contradiction_of_a_queue_is_one_sentence() {
    for (words, sentence) in [
        (
            "queue 50",
            "pipe p: a queue (queue, limit, drop) without a rate: nothing would ever wait in it; give a rate or leave it out (a delay line needs no queue)",
        ),
        (
            "codel",
            "pipe p: queue management (red, codel, pie) without a rate: nothing would ever wait in it; give a rate or leave it out (a delay line needs no queue)",
        ),
        (
            "type drr",
            "pipe p: a scheduler without a rate: nothing would ever wait in it; give a rate or leave it out (a delay line needs no queue)",
        ),
        ("rate 1M queue 0", "pipe p: queue of 0 packets: a link with a rate needs room for one; give 1 or more"),
        ("rate 1M queue 59B", "pipe p: queue of 59 bytes: no frame fits into it (the smallest is 60); give more"),
        ("rate 1M red 0.002/15/5/0.1", "pipe p: red: min is 15 and max 5; min must be below max"),
        ("rate 1M red 0.002/5/5/0.1", "pipe p: red: min is 5 and max 5; min must be below max"),
        ("rate 1M red 2/5/15/0.1", "pipe p: red: the weight is 2; it must be above 0 and at most 1"),
        ("rate 1M red 0.1/5/15/0", "pipe p: red: the probability at max is 0; it must be above 0 and at most 1"),
        ("rate 1M codel target 100ms interval 5ms", "pipe p: codel: the target 100ms must be below the interval 5ms"),
        (
            "rate 1M codel type fq_codel",
            "pipe p: red, codel and pie cannot be beside fq_codel or dualpi2, which manage their own queues; leave one out",
        ),
        ("rate 1M pie alpha 0", "pipe p: pie alpha is 0; it must be above 0"),
        ("rate 1M type fq_codel flows 0", "pipe p: fq_codel: flows is 0; it must be from 1 to 65536"),
        ("rate 1M type drr quantum 0", "pipe p: drr: a quantum of 0 bytes serves nobody; give 1514"),
        (
            "rate 1M type fifo class a weight 1",
            "pipe p: classes need a scheduler that knows weights; write \"type wf2q+\" or \"type drr\"",
        ),
        ("rate 1M class a weight 0", "pipe p: class a: a weight of 0 is never served; give 1 or more"),
        (
            "rate 1M class a weight 1 queue 0",
            "pipe p: class a: queue of 0 packets: a link with a rate needs room for one; give 1 or more",
        ),
        ("rate 1M class a weight 1 red 0.1/9/5/0.1", "pipe p: class a: red: min is 9 and max 5; min must be below max"),
    ] {
        assert_eq!(of_words(words), sentence);
    }
    let twice = spoilt("rate 1M class a weight 1", |pipe| {
        let class = Class { name: "a".to_owned(), weight: 2, limit: None, aqm: None };
        pipe.queue.classes.push(class);
    });
    assert_eq!(twice, "pipe p: class a is given twice; give each its own name");
    let dual = spoilt("rate 1M", |pipe| {
        pipe.queue.scheduler =
            Scheduler::DualPi2 { target: Nanos::millis(15), step: Nanos::millis(1), coupling: f64::NAN };
    });
    assert!(dual.contains("coupling is NaN"), "{dual}");
}

#[test]
fn each_contradiction_of_a_loss_is_one_sentence() {
    for (words, sentence) in [
        (
            "loss state 60% 20% 5% 30% 50%",
            "pipe p: loss state: p13 + p14 is 1.1; what leaves a state cannot be more than 1, make them smaller",
        ),
        (
            "loss state 1% 60% 50%",
            "pipe p: loss state: p31 + p32 is 1.1; what leaves a state cannot be more than 1, make them smaller",
        ),
        (
            "loss ge 0 0 0 100%",
            "pipe p: loss ge: with p and r both 0 it never leaves the state it starts in; give either",
        ),
        ("after loss every 0", "pipe p: after the link: loss every 0 has no meaning; packets are counted from 1"),
        ("loss segment 0", "pipe p: loss segment 0 has no meaning; segments are counted from 1"),
        ("loss syn 0", "pipe p: loss syn 0 loses nothing; leave it out"),
        ("loss dwell 1s 0", "pipe p: loss dwell (the bad state) is 0ns; it must be above 0"),
    ] {
        assert_eq!(of_words(words), sentence);
    }
    for value in [-0.1, 1.1, f64::NAN] {
        let loss = Loss::Independent { probability: value };
        let refused = spoilt("", |pipe| pipe.before.loss.push(loss));
        assert_eq!(refused, format!("pipe p: loss is {value}, and not from 0 to 1 (0% to 100%)"));
        let refused = spoilt("", |pipe| pipe.before.duplication = Some(value));
        assert!(refused.starts_with("pipe p: duplicate is"), "{refused}");
    }
    let empty = spoilt("", |pipe| pipe.before.loss.push(Loss::Pattern { lost: Vec::new(), file: "f".to_owned() }));
    assert_eq!(empty, "pipe p: the pattern of f is empty; write 0 and 1 into it");
}

#[test]
fn each_contradiction_of_a_delay_is_one_sentence() {
    for (words, sentence) in [
        (
            "half-life 5ms delay 20ms",
            "pipe p: half-life without jitter: nothing is drawn that it could hold on to; give a jitter",
        ),
        (
            "reorder 5%",
            "pipe p: reorder without delay: a chosen packet can only overtake what is delayed; give a delay",
        ),
        ("delay 200h", "pipe p: delay is 720000s; the longest is a week (604800s)"),
        ("jitter 1ms half-life 0", "pipe p: half-life is 0ns; it must be above 0"),
    ] {
        assert_eq!(of_words(words), sentence);
    }
    let shape = |distribution| spoilt("", |pipe| pipe.delay.jitter = Some(distribution));
    assert_eq!(
        shape(Distribution::Pareto { scale: Nanos(5), shape: 1.0 }),
        "pipe p: distribution lomax: with a shape of 1 there is no mean; give more than 1"
    );
    assert!(
        shape(Distribution::Gamma { scale: Nanos(5), shape: 0.0 }).contains("the shape of distribution gamma is 0")
    );
    assert!(shape(Distribution::Normal { sd: Nanos(-5) }).contains("must be above 0"));
    let points = vec![(0.0, Nanos(5)), (1.0, Nanos(4))];
    assert!(shape(Distribution::Empirical { points, file: "f".to_owned() }).contains("does not rise"));
    let values = vec![5, 4];
    assert!(
        shape(Distribution::Table { sd: Nanos(5), values, file: "f".to_owned() }).contains("no values in rising order")
    );
    assert!(spoilt("", |pipe| pipe.delay.constant = Nanos(-1)).contains("cannot be below 0"));
}

#[test]
fn masks_and_names_out_of_range_are_refused() {
    assert_eq!(
        spoilt("", |pipe| pipe.mask = Some(Mask { source4: 33, ..Mask::default() })),
        "pipe p: mask src-ip has 33 bits; there are 32"
    );
    assert!(
        spoilt("", |pipe| pipe.mask = Some(Mask { most: u32::MAX, ..Mask::default() })).contains("flows are the most")
    );
    assert!(spoilt("", |pipe| pipe.name.clear()).contains("it has no name"));
    assert!(spoilt("", |pipe| pipe.name.push('"')).contains("has a quote or a control character in it"));
    assert!(
        spoilt("rate 1M class a weight 1", |pipe| pipe.queue.classes[0].name.clear()).contains("a class has no name")
    );
}

fn config() -> Config {
    let pipe =
        |name: &str, words: &str| pipe_from_words(words, &Pipe { name: name.to_owned(), ..Pipe::default() }).unwrap();
    Config { pipes: vec![pipe("a", "rate 10M class x weight 1"), pipe("b", "delay 1ms")], ..Config::default() }
}

fn with_rule(on: Match, action: Action) -> String {
    let config = Config { rules: vec![Rule { number: 10, on, action }], ..config() };
    check(&config).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
}

#[test]
fn rules_that_name_an_unknown_pipe_or_class_are_refused() {
    let to = |pipe: &str, class: Option<&str>| {
        with_rule(Match::default(), Action::Pipe { pipe: pipe.to_owned(), class: class.map(str::to_owned) })
    };
    assert_eq!(to("a", Some("x")), "fine");
    assert_eq!(to("b", None), "fine");
    assert_eq!(to("c", None), "rule 10: there is no pipe \"c\"; there are: a, b");
    assert_eq!(to("a", Some("y")), "rule 10: pipe a has no class \"y\"; it has: x");
    assert_eq!(to("b", Some("x")), "rule 10: pipe b has no class \"x\"; it has: none");
}

#[test]
fn rules_that_never_match_are_refused() {
    let on = |spoil: fn(&mut Match)| {
        let mut on = Match::default();
        spoil(&mut on);
        with_rule(on, Action::Pass)
    };
    let prefix = |text: &str, bits| Some(Prefix { address: text.parse().unwrap(), bits });
    assert!(on(|on| on.source_ports = vec![(90, 80)]).contains("go backwards"));
    assert!(
        on(|on| (on.protocol, on.source_ports) = (Some(1), vec![(80, 80)]))
            .contains("ports of a protocol that has none")
    );
    assert!(on(|on| (on.protocol, on.tcp_set) = (Some(17), 2)).contains("name tcp"));
    assert!(on(|on| (on.tcp_set, on.tcp_clear) = (2, 2)).contains("both set and clear"));
    assert!(on(|on| on.dscp = Some(64)).contains("from 0 to 63"));
    assert!(on(|on| on.vlan = Some(4095)).contains("from 1 to 4094"));
    assert!(on(|on| on.length = Some((9, 8))).contains("go backwards"));
    assert!(on(|on| on.probability = Some(2.0)).contains("probability is 2"));
    let mixed = Match { source: prefix("10.0.0.0", 8), destination: prefix("fd00::", 8), ..Match::default() };
    assert!(with_rule(mixed, Action::Pass).contains("different IP versions"));
    let wide = Match { source: prefix("10.0.0.0", 33), ..Match::default() };
    assert_eq!(with_rule(wide, Action::Pass), "rule 10: 10.0.0.0/33 has more bits than the address");
    let arp = Match { source: prefix("10.0.0.0", 8), ethertype: Some(0x0806), ..Match::default() };
    assert!(with_rule(arp, Action::Pass).contains("is not of EtherType 0x0806"));
}

#[test]
fn more_pipes_or_classes_than_can_be_numbered_are_refused() {
    let classes = |most: usize| {
        spoilt("rate 1M type drr class a weight 1", |pipe| {
            let class = pipe.queue.classes.remove(0);
            pipe.queue.classes = (0..most).map(|number| Class { name: number.to_string(), ..class.clone() }).collect();
        })
    };
    assert_eq!((classes(65_535), classes(65_536)), ("fine".to_owned(), "pipe p: more than 65535 classes".to_owned()));
    let pipes = |most: usize| {
        let pipe = |number: usize| Pipe { name: number.to_string(), ..Pipe::default() };
        check(&Config { pipes: (0..most).map(pipe).collect(), ..Config::default() })
    };
    assert!(pipes(MOST_PIPES).is_ok());
    let error = pipes(MOST_PIPES + 1).unwrap_err().to_string();
    assert!(error.contains("more than 65535 pipes; use a mask for pipes of flows"), "{error}");
}

#[test]
fn duplicate_pipe_names_and_rule_numbers_are_refused() {
    let mut twice = config();
    twice.pipes[1].name = "a".to_owned();
    assert_eq!(check(&twice).unwrap_err().to_string(), "pipe a: its name is given twice; give each pipe its own");
    let rule = Rule { number: 5, on: Match::default(), action: Action::Count };
    let rules = Config { rules: vec![rule.clone(), rule], ..config() };
    assert_eq!(check(&rules).unwrap_err().to_string(), "rule 5: its number is given twice; give each rule its own");
    assert!(check(&Config { memory_bytes: 10, ..config() }).is_err());
    assert!(check(&Config { budget: Nanos(-1), ..config() }).is_err());
}

#[test]
fn bandwidth_delay_product_above_the_memory_limit_is_refused() {
    let base = Pipe { name: "sat".to_owned(), ..Pipe::default() };
    let pipe = pipe_from_words("rate 10Gbit/s delay 1s", &base).unwrap();
    let small = Config { pipes: vec![pipe], ..Config::default() };
    assert_eq!(
        check(&small).unwrap_err().to_string(),
        "pipe sat: 10Gbit/s × 1s of delay are 1193 MB on their way (with the pipes before it 1193 MB), more than the memory of 256MB; give more with --memory 1193MB (memory = \"1193MB\" in a file), or less of either"
    );
    assert_eq!(check(&Config { memory_bytes: 1193 << 20, ..small }), Ok(()));
}
