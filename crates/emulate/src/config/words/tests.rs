//! Tests of the words of three dialects, parsed and printed; refusals are in `tests/corpus`.

use std::path::PathBuf;

use proptest::option;
use proptest::prelude::*;
use sojourn_time::Nanos;

use super::table::Word;
use super::*;
use crate::config::{
    Aqm, Cell, Class, Codel, Corruption, Delay, Distribution, DropFrom, FqCodel, Impairments, Limit, Link, Loss, Mask,
    Order, Outage, Pie, PortDelay, Queue, Red, Reorder, Scheduler, Trace, check_pipe,
};

fn pipe(words: &str) -> Pipe {
    pipe_from_words(words, &Pipe::default()).unwrap_or_else(|error| panic!("{words}: {error}"))
}

fn refused(words: &str) -> String {
    pipe_from_words(words, &Pipe::default()).unwrap_err().problem
}

fn only_loss(words: &str) -> Loss {
    let [loss] = &pipe(words).before.loss[..] else { panic!("one loss") };
    loss.clone()
}

/// Every word is declared once and has a recorded case in `tests/corpus`; every option has one that is accepted.
#[test]
fn every_word_is_declared_once_and_what_it_does_is_recorded() {
    let recorded: Vec<&str> = include_str!("../../../tests/corpus/configurations.txt").lines().collect();
    let cases = recorded.windows(2).filter_map(|pair| Some((pair[0].strip_prefix("words: ")?, pair[1])));
    let cases: Vec<_> = cases.collect();
    for (at, Word { word, option, .. }) in table::WORDS.iter().enumerate() {
        assert!(table::WORDS[..at].iter().all(|other| other.word != *word), "{word} is declared twice");
        let mut of_word = cases.iter().filter(|(case, _)| case.split(' ').any(|known| known == *word));
        let does = |(_, answer): &(&str, &str)| option.is_none() || answer.starts_with("= {\"");
        assert!(of_word.any(does), "{word} has no case in tests/corpus/configurations.txt");
    }
}

/// Examples quoted in help, such as "25% gap 5", are accepted literally.
#[test]
fn examples_in_the_help_are_accepted() {
    let is_file = |example: &&str| example.contains("FILE");
    for option in pipe_options() {
        for example in option.help.split('"').skip(1).step_by(2).filter(|example| !is_file(example)) {
            let read = pipe_from_options([(option.word, example)], &Pipe::default());
            assert_ne!(read.unwrap_or_else(|error| panic!("{}: {error}", option.word)), Pipe::default());
        }
    }
}

#[test]
fn words_of_netem_and_dummynet_can_be_mixed() {
    let pipe = pipe("bw 10Mbit/s delay 20ms 2ms distribution normal plr 0.01 queue 50");
    assert_eq!(pipe.link.rate_bps, Some(10_000_000));
    assert_eq!(pipe.delay.constant, Nanos::millis(20));
    assert_eq!(pipe.delay.jitter, Some(Distribution::Normal { sd: Nanos::millis(2) }));
    assert_eq!(pipe.before.loss, [Loss::Independent { probability: 0.01 }]);
    assert_eq!(pipe.queue.limit.slots, Some(50));
}

#[test]
fn empty_configuration_string_is_an_idle_pipe() {
    assert_eq!(pipe(""), Pipe::default());
    assert_eq!(to_words(&Pipe::default()), "");
}

#[test]
fn only_named_parameters_change() {
    let base = pipe("rate 10Mbit/s queue 30KB delay 20ms jitter 2ms distribution normal loss 1% after loss 3%");
    let change = |words: &str| pipe_from_words(words, &base).unwrap();
    let mut other = change("loss 2%");
    assert_eq!(other.before.loss, [Loss::Independent { probability: 0.02 }]);
    other.before = base.before.clone();
    assert_eq!(other, base);
    assert_eq!(change("jitter 5ms").delay.jitter, Some(Distribution::Normal { sd: Nanos::millis(5) }));
    assert_eq!(change("distribution uniform").delay.jitter, Some(Distribution::Uniform { spread: Nanos::millis(2) }));
    assert_eq!(change("delay 5ms").delay, Delay { constant: Nanos::millis(5), ..base.delay.clone() });
    assert_eq!(change("jitter none").delay.jitter, None);
    assert_eq!(change("loss none").before, Impairments::default());
    assert_eq!(change("loss 0%").before, Impairments::default());
    assert_eq!(change("after loss none").after, Impairments::default());
    assert_eq!(change("rate none queue auto").link, Link::default());
    assert_eq!(change("queue auto").queue, Queue::default());
    assert_eq!(change(""), base);
}

#[test]
fn several_losses_in_one_configuration_string_are_all_kept() {
    assert_eq!(pipe("loss 1% loss every 10 plr 0.5").before.loss.len(), 3);
    let pipe = pipe("loss 1% after loss 2% before corrupt 1%");
    assert_eq!((pipe.before.loss.len(), pipe.after.loss.len()), (1, 1));
    assert_eq!(pipe, self::pipe("loss-after 2% corrupt 1% loss 1%"));
    assert_eq!(pipe.before.corruption, Some(Corruption::OneBit(0.01)));
}

#[test]
fn netem_command_lines_have_the_meaning_of_netem() {
    let pipe =
        pipe("tc qdisc add dev eth1 root netem limit 1000 delay 1000 100 loss 1 duplicate 0.5 rate 1kbps 20 48 5");
    assert_eq!(pipe.delay.constant, Nanos(1_000));
    assert_eq!(pipe.delay.jitter, Some(Distribution::Uniform { spread: Nanos(100) }));
    assert_eq!(pipe.before.loss, [Loss::Independent { probability: 0.01 }]);
    assert_eq!(pipe.before.duplication, Some(0.005));
    assert_eq!((pipe.link.rate_bps, pipe.link.overhead_bytes), (Some(8_000), 20));
    assert_eq!(pipe.link.cell, Some(Cell { bytes: 48, overhead_bytes: 5 }));
    assert_eq!(refused("tc qdisc add dev eth1 root tbf rate 1mbit"), "this tc command has no netem in it");
}

#[test]
fn dummynet_command_lines_have_the_meaning_of_dummynet() {
    let pipe = pipe(
        "ipfw pipe 3 config bw 10Mbps delay 20 plr 0.01,0.1,0.7,0.3 queue 30Kbytes gred 0.002/5/15/0.1 ecn buckets 64 noerror",
    );
    assert_eq!((pipe.link.rate_bps, pipe.delay.constant), (Some(10_000_000), Nanos::millis(20)));
    assert_eq!(pipe.before.loss, [Loss::GilbertElliott { p: 0.1, r: 0.3, h: 1.0 - 0.7, k: 0.99 }]);
    assert_eq!(pipe.queue.limit, Limit { slots: None, bytes: Some(30_720) });
    let red = Red { weight: 0.002, min: 5.0, max: 15.0, max_p: 0.1, gentle: true, in_bytes: true, ecn: true };
    assert_eq!(pipe.queue.aqm, Some(Aqm::Red(red)));
    assert_eq!(self::pipe("rate 1M aqm codel ecn"), self::pipe("rate 1M codel ecn"));
    assert_eq!(self::pipe("rate 1M aqm fq_codel"), self::pipe("rate 1M type fq_codel"));
    assert_eq!(pipe_from_words("aqm none", &self::pipe("rate 1M pie")).unwrap(), self::pipe("rate 1M"));
    assert_eq!(pipe_from_words("pipe 1 config bw 0", &Pipe::default()).unwrap(), Pipe::default());
}

#[test]
fn loss_models_have_the_defaults_of_netem() {
    assert_eq!(only_loss("loss gemodel 1%"), Loss::GilbertElliott { p: 0.01, r: 0.99, h: 0.0, k: 1.0 });
    assert_eq!(
        only_loss("loss gemodel 1% 10% 70% 0.1%"),
        Loss::GilbertElliott { p: 0.01, r: 0.1, h: 1.0 - 0.7, k: 1.0 - 0.001 }
    );
    assert_eq!(only_loss("loss state 1%"), Loss::FourState { p13: 0.01, p31: 0.99, p23: 1.0, p32: 0.0, p14: 0.0 });
    assert_eq!(
        only_loss("loss state 1% 20% 5% 30% 0.1%"),
        Loss::FourState { p13: 0.01, p31: 0.2, p32: 0.05, p23: 0.3, p14: 0.001 }
    );
    assert_eq!(only_loss("loss every 100"), Loss::Every { every: 100, first: 100 });
    assert_eq!(only_loss("loss syn"), Loss::Syn { count: 1 });
    assert_eq!(only_loss("loss segment 10 retransmissions 2"), Loss::Segment { index: 10, retransmissions: 2 });
    assert_eq!(only_loss("loss dwell 1s 50ms"), Loss::Dwell { good: Nanos::seconds(1), bad: Nanos::millis(50) });
}

/// netem's `loss P CORR` with 10 % and 25 % loses 1.75 %; here the loss is P and the correlation CORR, exactly.
#[test]
fn correlated_loss_has_exactly_the_requested_loss_and_correlation() {
    for (loss, correlation) in [(0.003, 0.25), (0.1, 0.25), (0.3, 0.75), (0.9, 0.25)] {
        let words = format!("loss {} {}", units::percentage_text(loss), units::percentage_text(correlation));
        let Loss::GilbertElliott { p, r, h, k } = only_loss(&words) else { panic!("{words}") };
        assert_eq!((h, k), (0.0, 1.0));
        assert!((p / (p + r) - loss).abs() < 1e-12, "{words}: its loss is {}", p / (p + r));
        assert!((1.0 - p - r - correlation).abs() < 1e-12, "{words}: its correlation is {}", 1.0 - p - r);
    }
    assert_eq!(only_loss("loss 1% 0%"), Loss::Independent { probability: 0.01 });
}

#[test]
fn burst_loss_has_the_requested_loss_rate_and_mean_burst_length() {
    let Loss::GilbertElliott { p, r, .. } = only_loss("loss burst 1% 5") else { panic!("two states") };
    assert!((p / (p + r) - 0.01).abs() < 1e-15 && (1.0 / r - 5.0).abs() < 1e-12);
    assert!(refused("loss burst 90% 1").contains("make them longer"));
    assert!(refused("loss burst 1% 0.5").contains("1 or more"));
}

#[test]
fn jitter_scales_the_distribution() {
    let jitter = |words: &str| pipe(words).delay.jitter.unwrap();
    let ms = Nanos::millis;
    assert_eq!(jitter("delay 20ms 2ms"), Distribution::Uniform { spread: ms(2) });
    assert_eq!(jitter("distribution exponential jitter 2ms"), Distribution::Exponential { mean: ms(2) });
    assert_eq!(
        jitter("jitter 2ms distribution gamma 4"),
        Distribution::Gamma { shape: 4.0, scale: Nanos::micros(500) }
    );
    assert_eq!(jitter("jitter 2ms distribution lomax 3"), Distribution::Pareto { shape: 3.0, scale: ms(4) });
    assert_eq!(jitter("distribution gamma 2 scale 1ms"), Distribution::Gamma { shape: 2.0, scale: ms(1) });
    let Distribution::Table { sd, values, file } = jitter("delay 20ms 2ms distribution paretonormal") else {
        panic!("a table")
    };
    assert_eq!((sd, values.len(), file.as_str()), (ms(2), 4096, "paretonormal"));
}

#[test]
fn class_accepts_the_words_of_a_queue() {
    let queue = pipe("rate 1M queue 50 class a weight 3 queue 10KB red 0.1/1/2/0.5 class b delay 5ms codel").queue;
    assert_eq!((queue.scheduler, queue.limit.slots), (Scheduler::Wf2q, Some(50)));
    assert_eq!(queue.classes[0].limit, Some(Limit { slots: None, bytes: Some(10_240) }));
    assert!(matches!(queue.classes[0].aqm, Some(Aqm::Red(Red { in_bytes: true, .. }))));
    assert_eq!(queue.classes[1], Class { name: "b".to_owned(), weight: 1, limit: None, aqm: None });
    assert_eq!(queue.aqm, Some(Aqm::Codel(Codel::default())), "delay 5ms ended the class");
    let base = pipe("rate 1M type drr quantum 500 class a weight 3");
    let changed = pipe_from_words("class a weight 5", &base).unwrap().queue;
    assert_eq!(
        (changed.classes.len(), changed.classes[0].weight, changed.scheduler),
        (1, 5, Scheduler::Drr { quantum: 500 })
    );
    assert!(pipe_from_words("classes none", &base).unwrap().queue.classes.is_empty());
}

#[test]
fn masks_are_prefix_lengths() {
    let mask = |words: &str| pipe(words).mask.unwrap();
    assert_eq!(
        mask("mask src-ip 0xffffff00 dst-port 0xffff proto 0xff"),
        Mask { source4: 24, destination_port: 0xffff, protocol: true, ..Mask::default() }
    );
    assert_eq!(mask("mask all most 9 delay 5ms"), Mask { most: 9, ..mask("mask all") });
    assert_eq!(mask("mask src-ip6 64 dst-ip6 /48 macs vlan").source6, 64);
    assert_eq!(
        refused("mask dst-ip 0x000000ff"),
        "mask dst-ip: \"0x000000ff\" is not a number of first bits; write /32 for each address by itself, or fewer"
    );
    assert!(refused("mask delay 5ms").starts_with("mask: which bits?"));
}

#[test]
fn file_names_are_relative_to_the_given_folder() {
    let folder: PathBuf = std::env::temp_dir().join(format!("sojourn-words-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("up link.csv"), "time,rate\n0,1Mbit/s\n1s,2Mbit/s\n").unwrap();
    std::fs::write(folder.join("losses"), "0001").unwrap();
    std::fs::write(folder.join("delays"), "1ms\n2ms\n9ms\n").unwrap();
    std::fs::write(folder.join("modem"), "bw 1Mbit/s\ndelay prob\n1 0\n5 1\n").unwrap();
    std::fs::write(folder.join("my.dist"), "-8192 0 8192\n").unwrap();
    let words = "trace \"up link.csv\" loss pattern losses ecdf delays";
    let read = pipe_in(words, &Pipe::default(), &folder);
    let profile = pipe_in("profile modem jitter 1ms distribution my.dist", &Pipe::default(), &folder);
    let missing = pipe_in("ecdf nowhere", &Pipe::default(), &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    let read = read.unwrap();
    assert!(matches!(&read.link.trace, Some(Trace::Points { points, .. }) if points.len() == 2));
    assert_eq!(read.before.loss, [Loss::Pattern { lost: vec![false, false, false, true], file: "losses".to_owned() }]);
    assert_eq!(to_words(&read), "loss pattern losses trace \"up link.csv\" ecdf delays");
    let profile = profile.unwrap();
    assert_eq!((profile.link.rate_bps, profile.link.profile.unwrap().samples.len()), (Some(1_000_000), 100));
    assert_eq!(
        profile.delay.jitter,
        Some(Distribution::Table { sd: Nanos::millis(1), values: vec![-8192, 0, 8192], file: "my.dist".to_owned() })
    );
    assert!(missing.unwrap_err().contains("cannot be read"));
}

fn share() -> impl Strategy<Value = f64> {
    prop_oneof![(1..=100_u32).prop_map(|percent| f64::from(percent) / 100.0), f64::MIN_POSITIVE..=1.0]
}

fn span() -> impl Strategy<Value = Nanos> {
    prop_oneof![(1..1000_i64).prop_map(Nanos::millis), (1..i64::MAX).prop_map(Nanos)]
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        share().prop_map(|probability| Loss::Independent { probability }),
        (share(), share(), 0.0..=1.0_f64, 0.0..=1.0_f64).prop_map(|(p, r, h, k)| Loss::GilbertElliott { p, r, h, k }),
        (share(), share()).prop_map(|(p, r)| Loss::GilbertElliott { p, r, h: 0.0, k: 1.0 }),
        (span(), span()).prop_map(|(good, bad)| Loss::Dwell { good, bad }),
        [share(), share(), share(), share(), share()].prop_map(|[p13, p31, p23, p32, p14]| Loss::FourState {
            p13,
            p31,
            p23,
            p32,
            p14
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(every, first)| Loss::Every { every, first }),
        any::<u32>().prop_map(|count| Loss::Syn { count }),
        (any::<u64>(), any::<u32>()).prop_map(|(index, retransmissions)| Loss::Segment { index, retransmissions }),
    ]
}

fn impairments() -> impl Strategy<Value = Impairments> {
    let corruption = prop_oneof![share().prop_map(Corruption::OneBit), share().prop_map(Corruption::BitErrorRate)];
    (prop::collection::vec(loss(), 0..3), option::of(corruption), option::of(share()))
        .prop_map(|(loss, corruption, duplication)| Impairments { loss, corruption, duplication })
}

fn link() -> impl Strategy<Value = Link> {
    let cell = (1..u32::MAX, any::<u32>()).prop_map(|(bytes, overhead_bytes)| Cell { bytes, overhead_bytes });
    let outage = (span(), span(), option::of(span())).prop_map(|(at, lasts, every)| Outage { at, lasts, every });
    (option::of(any::<u64>()), any::<i32>(), option::of(cell), any::<u64>(), prop::collection::vec(outage, 0..3))
        .prop_map(|(rate_bps, overhead_bytes, cell, burst_bytes, outages)| Link {
            rate_bps,
            overhead_bytes,
            cell,
            burst_bytes,
            outages,
            ..Link::default()
        })
}

fn delay() -> impl Strategy<Value = Delay> {
    let jitter = prop_oneof![
        span().prop_map(|spread| Distribution::Uniform { spread }),
        span().prop_map(|sd| Distribution::Normal { sd }),
        span().prop_map(|mean| Distribution::Exponential { mean }),
        (span(), 1.01..9.0_f64).prop_map(|(scale, shape)| Distribution::Pareto { scale, shape }),
        (span(), 0.01..9.0_f64).prop_map(|(scale, shape)| Distribution::Gamma { shape, scale }),
        span().prop_map(|sd| {
            let pareto = pipe("jitter 1ms distribution pareto").delay.jitter;
            let Some(Distribution::Table { values, file, .. }) = pareto else { panic!("a table") };
            Distribution::Table { sd, values, file }
        }),
    ];
    let reorder =
        (share(), any::<u64>(), option::of(span())).prop_map(|(probability, gap, by)| Reorder { probability, gap, by });
    let order = prop_oneof![Just(Order::Kept), Just(Order::Free)];
    let of_ports = prop::collection::vec((any::<u16>(), any::<u16>(), span()), 0..3)
        .prop_map(|own| own.into_iter().map(|(first, last, constant)| PortDelay { first, last, constant }).collect());
    (span(), option::of(jitter), option::of(span()), order, option::of(reorder), of_ports).prop_map(
        |(constant, jitter, half_life, order, reorder, of_ports)| Delay {
            constant,
            jitter,
            half_life,
            order,
            reorder,
            of_ports,
        },
    )
}

fn limit() -> impl Strategy<Value = Limit> {
    (option::of(any::<u64>()), option::of(any::<u64>())).prop_map(|(slots, bytes)| Limit { slots, bytes })
}

fn codel() -> impl Strategy<Value = Codel> {
    (span(), span(), any::<bool>()).prop_map(|(target, interval, ecn)| Codel { target, interval, ecn })
}

fn aqm() -> impl Strategy<Value = Aqm> {
    let red = (share(), 0.0..1e9_f64, 0.0..1e9_f64, share(), any::<[bool; 3]>()).prop_map(
        |(weight, min, max, max_p, [gentle, in_bytes, ecn])| Red { weight, min, max, max_p, gentle, in_bytes, ecn },
    );
    let pie = (span(), span(), share(), share(), span(), share(), any::<bool>()).prop_map(
        |(target, update, alpha, beta, max_burst, max_ecn, ecn)| Pie {
            target,
            update,
            alpha,
            beta,
            max_burst,
            max_ecn,
            ecn,
        },
    );
    prop_oneof![red.prop_map(Aqm::Red), codel().prop_map(Aqm::Codel), pie.prop_map(Aqm::Pie)]
}

fn queue() -> impl Strategy<Value = Queue> {
    let scheduler = prop_oneof![
        Just(Scheduler::Fifo),
        Just(Scheduler::Wf2q),
        any::<u32>().prop_map(|quantum| Scheduler::Drr { quantum }),
        (any::<u32>(), any::<u32>(), any::<u32>(), codel())
            .prop_map(|(flows, quantum, limit, codel)| Scheduler::FqCodel(FqCodel { flows, quantum, limit, codel })),
        (span(), span(), 0.1..9.0_f64).prop_map(|(target, step, coupling)| Scheduler::DualPi2 {
            target,
            step,
            coupling
        }),
    ];
    // A class without its own limit has no limit, not an empty one.
    let own = option::of(limit().prop_filter("empty", |limit| *limit != Limit::default()));
    let class = (any::<u32>(), own, option::of(aqm())).prop_map(|(weight, limit, aqm)| Class {
        name: String::new(),
        weight,
        limit,
        aqm,
    });
    let drop = prop_oneof![Just(DropFrom::Tail), Just(DropFrom::Head)];
    (limit(), drop, option::of(aqm()), scheduler, prop::collection::vec(class, 0..3)).prop_map(
        |(limit, drop, aqm, scheduler, mut classes)| {
            for (class, name) in classes.iter_mut().zip(["web", "a b", "3"]) {
                name.clone_into(&mut class.name);
            }
            Queue { limit, drop, aqm, scheduler, classes }
        },
    )
}

fn mask() -> impl Strategy<Value = Mask> {
    (0..=32_u8, 0..=32_u8, 0..=128_u8, 0..=128_u8, any::<[u16; 2]>(), any::<[bool; 3]>(), any::<u32>()).prop_map(
        |(
            source4,
            destination4,
            source6,
            destination6,
            [source_port, destination_port],
            [protocol, macs, vlan],
            most,
        )| Mask {
            source4,
            destination4,
            source6,
            destination6,
            source_port,
            destination_port,
            protocol,
            macs,
            vlan,
            most,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn printed_pipes_parse_to_the_same_pipes(
        mask in option::of(mask()), before in impairments(), after in impairments(), link in link(), delay in delay(), queue in queue(),
    ) {
        let pipe = Pipe { name: "p".to_owned(), mask, before, queue, link, after, delay };
        let words = to_words(&pipe);
        let base = Pipe { name: "p".to_owned(), ..Pipe::default() };
        let read = pipe_from_words(&words, &base).map_err(|error| TestCaseError::fail(format!("{words}: {error}")))?;
        prop_assert_eq!(&read, &pipe, "{}", words);
        // A replay must read exactly the same numbers from a log.
        let json = serde_json::to_string(&pipe).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let again: Pipe = serde_json::from_str(&json).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(again, pipe, "{}", json);
    }

    #[test]
    fn arbitrary_text_never_panics(
        text in "((delay|loss|rate|queue|red|codel|class|mask|all|jitter|none|reorder|gap|outage|every|1%|20ms|10M|5|0.1/5/9/0.1|distribution|gamma|normal|after|burst|ge|state|gemodel|cell|netem|pipe 1 config) ){0,12}",
        any in ".{0,80}",
    ) {
        for text in [text, any] {
            if let Ok(pipe) = pipe_from_words(&text, &Pipe::default()) {
                let _ = check_pipe(&pipe);
                let words = to_words(&pipe);
                let again = pipe_from_words(&words, &Pipe::default()).map_err(|error| TestCaseError::fail(format!("{words}: {error}")))?;
                prop_assert_eq!(again, pipe, "{}", words);
            }
        }
    }
}

#[test]
fn aqm_is_removed_by_its_name_or_aqm_none_together_with_its_scheduler() {
    let idle = Pipe::default();
    for (managed, away) in [
        ("codel target 3ms", "codel none"),
        ("pie", "aqm none"),
        ("type fq_codel", "aqm none"),
        ("fq_codel", "fq_codel none"),
        ("dualpi2", "aqm none"),
    ] {
        let base = pipe_from_words(managed, &idle).unwrap();
        assert_ne!(base, idle);
        assert_eq!(pipe_from_words(away, &base).unwrap(), idle, "{managed}, {away}");
    }
}

#[test]
fn only_the_effective_one_of_two_queue_limits_is_printed() {
    let pipe = pipe_from_words("rate 1Mbit/s queue 100 fq_codel", &Pipe::default()).unwrap();
    let words = to_words(&pipe);
    assert!(words.contains("queue 100") && !words.contains("limit"), "{words}");
    assert_eq!(pipe_from_words(&words, &Pipe::default()).unwrap(), pipe);
}

#[test]
fn stages_are_printed_in_the_order_in_which_a_packet_passes_them() {
    let text = "loss 2% rate 20Mbit/s delay 20ms after corrupt 1% queue 100";
    let pipe = pipe_from_words(text, &Pipe::default()).unwrap();
    let busy: Vec<_> = to_stages(&pipe).into_iter().filter(|(_, words)| !words.is_empty()).collect();
    let expected = [
        ("impairments before the queue", "loss 2%"),
        ("queue", "queue 100"),
        ("link", "rate 20Mbit/s"),
        ("impairments after the link", "corrupt 1%"),
        ("delay", "delay 20ms"),
    ];
    assert_eq!(busy, expected.map(|(stage, words)| (stage, words.to_owned())));
    assert!(to_stages(&Pipe::default()).iter().all(|(_, words)| words.is_empty()));
    let unlimited = pipe_from_words("rate 1Mbit/s", &Pipe::default()).unwrap();
    assert!(to_stages(&unlimited).contains(&("queue", "without a limit".to_owned())));
}
