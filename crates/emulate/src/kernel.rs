//! The configuration as `tc` commands for the kernel's own netem (`--backend kernel`).
//!
//! This module only generates text; it does not run the commands. Forward packets leave by the right port, so the
//! forward pipe becomes the right port's qdisc. Whatever netem would do differently from this engine is refused with a
//! message (the list is from `sch_netem.c` of Linux 6.12 and its maintainer's series of March 2026). These differences
//! remain: netem's normal distribution is a table of 4096 values truncated at 4 standard deviations; a frame's time on
//! the link is truncated to whole nanoseconds; probabilities are multiples of 2⁻³²; and its random numbers differ, so a
//! seed gives other dispositions. The ports must be in a bridge and must not merge frames
//! (`ethtool -K PORT gro off lro off`): netem sees a merged frame as one packet. On machines without netem, tests check
//! only the text of the commands; `make kernels` runs them on kernels with netem.

use sojourn_time::Nanos;

use crate::config::units::percentage_text;
use crate::config::{
    Action, Cell, Config, ConfigError, Direction, Distribution, DropFrom, Impairments, Limit, Loss, Mask, Match, Order,
    Pipe, Queue, Rule, Scheduler, check,
};

/// A command: the program and its arguments.
pub type Command = Vec<String>;

/// Returns the commands that configure both ports; none for a pipe that does nothing.
///
/// # Errors
/// Names the first thing that netem cannot do exactly, and what to write instead.
pub fn commands(config: &Config, left: &str, right: &str) -> Result<Vec<Command>, ConfigError> {
    check(config)?;
    let mut commands = Vec::new();
    for (pipe, port) in ported(config, left, right)? {
        let options =
            netem(pipe, config).map_err(|problem| ConfigError::new(format!("pipe {}", pipe.name), problem))?;
        if !options.is_empty() {
            let head = ["tc", "qdisc", "replace", "dev", port, "root", "netem"].map(str::to_owned);
            commands.push(head.into_iter().chain(options).collect());
        }
    }
    Ok(commands)
}

/// Returns the commands that undo those of [`commands`].
///
/// # Errors
/// As [`commands`] does.
pub fn undo(config: &Config, left: &str, right: &str) -> Result<Vec<Command>, ConfigError> {
    let done = commands(config, left, right)?;
    Ok(done
        .iter()
        .map(|command| ["tc", "qdisc", "del", "dev", port_of(command), "root"].map(str::to_owned).to_vec())
        .collect())
}

/// Returns a command of [`commands`] or [`undo`] with a handle for the qdisc, so that no other qdisc is removed.
pub fn under(handle: &str, command: &[String]) -> Command {
    let (root, rest) = command.split_at(command.len().min(ROOT_WORDS));
    [root, &["handle".to_owned(), handle.to_owned()], rest].concat()
}

/// Returns the port that a command of [`commands`] configures.
pub fn port_of(command: &[String]) -> &str {
    command.get(ROOT_WORDS - 2).map_or("", String::as_str)
}

/// Number of words up to `root` in `tc qdisc replace dev PORT root`.
const ROOT_WORDS: usize = 6;

/// Returns the egress port of each pipe. Only rules that select nothing but a direction have one.
fn ported<'a>(config: &'a Config, left: &'a str, right: &'a str) -> Result<Vec<(&'a Pipe, &'a str)>, ConfigError> {
    let mut ported: Vec<(&Pipe, &str)> = Vec::new();
    for rule in &config.rules {
        let wrong = |problem: &str| {
            ConfigError::new(
                format!("rule {}", rule.number),
                format!("the kernel's netem {problem}; use --backend user"),
            )
        };
        let (name, direction) = simple(rule)
            .ok_or_else(|| wrong("has no rules; only all packets of one way can go into a pipe of their own"))?;
        let port = if direction == Direction::Forward { right } else { left };
        let pipe =
            config.pipes.iter().find(|pipe| pipe.name == name).ok_or_else(|| wrong("does not know this pipe"))?;
        if ported.iter().any(|(known, at)| *at == port || known.name == pipe.name) {
            return Err(wrong("has one pipe for each way, and each way its own"));
        }
        ported.push((pipe, port));
    }
    Ok(ported)
}

/// Returns the pipe and the direction of a rule that selects nothing else.
fn simple(rule: &Rule) -> Option<(&str, Direction)> {
    let Action::Pipe { pipe, class: None } = &rule.action else { return None };
    let direction = rule.on.direction?;
    let plain = Match { direction: Some(direction), ..Match::default() };
    (rule.on == plain).then_some((pipe.as_str(), direction))
}

/// The message of a refusal.
type Refused = Result<(), String>;

/// Returns the words after `netem`; none for a pipe that does nothing.
fn netem(pipe: &Pipe, config: &Config) -> Result<Vec<String>, String> {
    refuse(pipe.mask.is_some_and(|mask| mask != Mask::default()), "has no pipes of flows; leave the mask out")?;
    refuse(pipe.after != Impairments::default(), "loses before its queue only; leave out what is after the link")?;
    refuse_link(pipe)?;
    refuse_queue(&pipe.queue)?;
    let mut words = Vec::new();
    delay(pipe, &mut words)?;
    impairments(&pipe.before, &mut words)?;
    rate(pipe, &mut words)?;
    if !words.is_empty() {
        words.splice(0..0, ["limit".to_owned(), limit(pipe, config)?.to_string()]);
    }
    Ok(words)
}

fn refuse(is_so: bool, problem: &str) -> Refused {
    if is_so { Err(format!("the kernel's netem {problem}, or use --backend user")) } else { Ok(()) }
}

fn refuse_link(pipe: &Pipe) -> Refused {
    let link = &pipe.link;
    refuse(link.burst_bytes != 0, "has no burst; leave it out")?;
    refuse(link.profile.is_some(), "has no delay profiles; leave the profile out")?;
    refuse(link.trace.is_some(), "has no traces; leave the trace out")?;
    refuse(!link.outages.is_empty(), "has no outages; leave them out")?;
    refuse(link.rate_bps.is_some_and(|bps| bps % 8 != 0), "counts whole bytes per second; give a rate that 8 divides")
}

fn refuse_queue(queue: &Queue) -> Refused {
    refuse(
        queue.aqm.is_some(),
        "manages no queue, and a qdisc below it would see the delay line, not the bottleneck; leave red, codel or pie out",
    )?;
    refuse(
        queue.scheduler != Scheduler::Fifo || !queue.classes.is_empty(),
        "has no scheduler; leave type and classes out",
    )?;
    refuse(queue.drop == DropFrom::Head, "loses at the tail only; leave \"drop head\" out")?;
    refuse(queue.limit.bytes.is_some(), "counts its queue in packets; give it in packets")
}

/// netem has one limit for the queue and the delay line together, so the queue's limit is exact only without a delay.
fn limit(pipe: &Pipe, config: &Config) -> Result<u64, String> {
    if pipe.link.rate_bps.is_none() {
        // Only the delay line counts then: as many packets as the memory could ever hold.
        return Ok((config.memory_bytes / 64).clamp(1, u64::from(u32::MAX)));
    }
    refuse(
        pipe.delay.constant.0 != 0,
        "has one limit for queue and delay line together; leave either the rate or the delay out",
    )?;
    let Limit { slots: Some(slots), .. } = pipe.queue.limit else {
        return Err("the kernel's netem counts its queue in packets and does not size it; give it, as in \"queue 50\", or use --backend user".to_owned());
    };
    // netem also counts the packet that is on the link.
    Ok(slots.saturating_add(1).min(u64::from(u32::MAX)))
}

fn delay(pipe: &Pipe, words: &mut Vec<String>) -> Refused {
    let delay = &pipe.delay;
    refuse(!delay.of_ports.is_empty(), "delays all packets alike; leave port-delay out")?;
    refuse(delay.half_life.is_some(), "cannot correlate delays (its correlation does nothing); leave half-life out")?;
    refuse(
        delay.jitter.is_some() && pipe.link.rate_bps.is_some(),
        "shifts the mean where a rate meets jitter; leave one out",
    )?;
    refuse(
        delay.jitter.is_some() && delay.order == Order::Kept,
        "lets packets overtake where there is jitter; write \"order free\"",
    )?;
    if delay.constant.0 != 0 || delay.jitter.is_some() {
        words.extend(["delay".to_owned(), microseconds(delay.constant)?]);
    }
    if let Some(jitter) = &delay.jitter {
        jitter_words(jitter, words)?;
    }
    reorder(pipe, words)
}

/// Returns a time in a form that tc accepts: Debian 12's tc has no unit below µs, and reads a fraction of one as none.
fn microseconds(time: Nanos) -> Result<String, String> {
    refuse(time.0 % 1_000 != 0, "takes times in whole µs; give such")?;
    Ok(format!("{}us", time.0 / 1_000))
}

fn jitter_words(jitter: &Distribution, words: &mut Vec<String>) -> Refused {
    let (size, name) = match jitter {
        Distribution::Uniform { spread } => (spread, "uniform"),
        Distribution::Normal { sd } => (sd, "normal"),
        Distribution::Table { sd, file, .. } if matches!(file.as_str(), "pareto" | "paretonormal") => {
            (sd, file.as_str())
        }
        _ => {
            return refuse(
                true,
                "only knows the distributions uniform, normal, pareto and paretonormal; name one of them",
            );
        }
    };
    words.push(microseconds(*size)?);
    // netem's default distribution is uniform; older versions of tc have no word for it.
    if name != "uniform" {
        words.extend(["distribution".to_owned(), name.to_owned()]);
    }
    Ok(())
}

fn reorder(pipe: &Pipe, words: &mut Vec<String>) -> Refused {
    let Some(reorder) = pipe.delay.reorder else { return Ok(()) };
    refuse(reorder.by.is_some(), "spares a reordered packet all of its delay; leave \"by\" out")?;
    refuse(pipe.link.rate_bps.is_some(), "sends reordered packets past its rate; leave one out")?;
    // After a gap netem tries each packet until one is selected: the same only if the first is selected for certain.
    refuse(
        reorder.gap > 1 && reorder.probability < 1.0,
        "counts gaps from the last reordered packet; give 100% or no gap",
    )?;
    words.extend(["reorder".to_owned(), percentage_text(reorder.probability)]);
    if reorder.gap > 1 {
        words.extend(["gap".to_owned(), reorder.gap.to_string()]);
    }
    Ok(())
}

fn impairments(impairments: &Impairments, words: &mut Vec<String>) -> Refused {
    refuse(impairments.loss.len() > 1, "has one model of loss; leave one")?;
    refuse(
        impairments.corruption.is_some(),
        "damages Ethernet headers too and knows no bit error rate; leave corruption out",
    )?;
    refuse(
        impairments.duplication.is_some() && !impairments.loss.is_empty(),
        "decides duplication before loss, so that a lost packet's copy goes on; leave one out",
    )?;
    if let Some(loss) = impairments.loss.first() {
        loss_words(loss, words)?;
    }
    if let Some(share) = impairments.duplication {
        words.extend(["duplicate".to_owned(), percentage_text(share)]);
    }
    Ok(())
}

fn loss_words(loss: &Loss, words: &mut Vec<String>) -> Refused {
    match loss {
        Loss::Independent { probability } => {
            words.extend(["loss".to_owned(), "random".to_owned(), percentage_text(*probability)])
        }
        Loss::GilbertElliott { p, r, h, k } => {
            words.extend(["loss".to_owned(), "gemodel".to_owned()]);
            words.extend([*p, *r, 1.0 - h, 1.0 - k].map(percentage_text));
        }
        Loss::FourState { .. } => {
            return refuse(true, "has a 4-state model whose probabilities had gaps until 2026; write \"loss gemodel\"");
        }
        _ => return refuse(true, "only loses at random or by gemodel; write one of them"),
    }
    Ok(())
}

fn rate(pipe: &Pipe, words: &mut Vec<String>) -> Refused {
    let Some(bps) = pipe.link.rate_bps else { return Ok(()) };
    words.extend(["rate".to_owned(), format!("{bps}bit")]);
    let Cell { bytes, overhead_bytes } = pipe.link.cell.unwrap_or(Cell { bytes: 0, overhead_bytes: 0 });
    if pipe.link.overhead_bytes != 0 || bytes != 0 {
        words.push(pipe.link.overhead_bytes.to_string());
    }
    if bytes != 0 {
        words.extend([bytes, overhead_bytes].map(|number| number.to_string()));
    }
    Ok(())
}

/// Formats commands as a person would type them.
pub fn to_text(commands: &[Command]) -> String {
    commands.iter().map(|command| command.join(" ") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::pipe_from_words;

    /// Makes a configuration with the same pipe in both directions.
    fn config(words: &str) -> Config {
        let pipe = |name: &str| pipe_from_words(words, &Pipe { name: name.to_owned(), ..Pipe::default() }).unwrap();
        let mut config = Config { pipes: vec![pipe("forward"), pipe("backward")], ..Config::default() };
        config.select_by_name();
        config
    }

    /// Returns the words after "netem limit N" of the forward pipe.
    fn netem_of(words: &str) -> String {
        let commands = commands(&config(words), "l", "r").unwrap_or_else(|error| panic!("{words}: {error}"));
        commands[0][9..].join(" ")
    }

    #[test]
    fn qdisc_handle_follows_the_keyword_root_also_for_a_port_named_root() {
        let config = config("delay 1ms");
        let (doing, undoing) = (commands(&config, "l", "root").unwrap(), undo(&config, "l", "root").unwrap());
        assert_eq!(under("5001:", &doing[0])[..8].join(" "), "tc qdisc replace dev root root handle 5001:");
        assert_eq!(under("5001:", &doing[0])[8..], doing[0][6..]);
        assert_eq!(under("5001:", &undoing[0]).join(" "), "tc qdisc del dev root root handle 5001:");
        assert_eq!(doing.iter().map(|command| port_of(command)).collect::<Vec<_>>(), ["root", "l"]);
    }

    #[test]
    fn forward_direction_is_shaped_at_the_second_port() {
        let config = config("delay 20ms loss 1%");
        assert_eq!(
            to_text(&commands(&config, "eth1", "eth2").unwrap()),
            "tc qdisc replace dev eth2 root netem limit 4194304 delay 20000us loss random 1%\n\
             tc qdisc replace dev eth1 root netem limit 4194304 delay 20000us loss random 1%\n"
        );
        assert_eq!(
            to_text(&undo(&config, "eth1", "eth2").unwrap()),
            "tc qdisc del dev eth2 root\ntc qdisc del dev eth1 root\n"
        );
    }

    #[test]
    fn a_pipe_that_does_nothing_needs_no_qdisc() {
        assert!(commands(&config(""), "l", "r").unwrap().is_empty());
        assert!(commands(&Config::default(), "l", "r").unwrap().is_empty());
    }

    #[test]
    fn configurations_that_netem_supports_become_its_options() {
        for (words, netem) in [
            ("delay 15us", "delay 15us"),
            ("delay 20ms 2ms order free", "delay 20000us 2000us"),
            ("delay 20ms 2ms distribution normal order free", "delay 20000us 2000us distribution normal"),
            ("delay 20ms 2ms distribution pareto order free", "delay 20000us 2000us distribution pareto"),
            ("loss gemodel 1% 10% 100% 0", "loss gemodel 1% 10% 100% 0%"),
            ("duplicate 0.5%", "duplicate 0.5%"),
            ("delay 1ms reorder 25%", "delay 1000us reorder 25%"),
            ("delay 1ms reorder 100% gap 5", "delay 1000us reorder 100% gap 5"),
            ("rate 10Mbit/s queue 50", "rate 10000000bit"),
            ("rate 10Mbit/s overhead 20 cell 48 5 queue 50", "rate 10000000bit 20 48 5"),
            ("rate 10Mbit/s atm queue 50", "rate 10000000bit 0 48 5"),
        ] {
            assert_eq!(netem_of(words), netem, "{words}");
        }
        let queue = commands(&config("rate 10Mbit/s queue 50"), "l", "r").unwrap();
        assert_eq!(queue[0][7..9], ["limit", "51"], "one more is on the link");
    }

    /// The printed commands, parsed by our own parser, give the configuration they were made from.
    #[test]
    fn printed_netem_commands_parse_to_the_same_configuration() {
        for words in [
            "delay 20ms 2ms distribution normal order free loss 1%",
            "loss gemodel 1% 10%",
            "delay 5ms duplicate 1% reorder 3%",
        ] {
            let config = config(words);
            let told = commands(&config, "l", "r").unwrap()[0].join(" ");
            let order = if words.contains("order free") { " order free" } else { "" };
            let base = Pipe { name: "forward".to_owned(), ..Pipe::default() };
            let mut read = pipe_from_words(&format!("{told}{order}"), &base).unwrap();
            read.queue.limit = Limit::default();
            assert_eq!(read, config.pipes[0], "{told}");
        }
    }

    #[test]
    fn configurations_that_netem_would_emulate_differently_are_refused() {
        for (words, part) in [
            ("delay 20ms 2ms", "lets packets overtake where there is jitter; write \"order free\""),
            ("delay 20ms 2ms half-life 5ms order free", "its correlation does nothing"),
            ("rate 10M queue 5 jitter 2ms order free", "shifts the mean where a rate meets jitter"),
            (
                "jitter 2ms distribution exponential order free",
                "only knows the distributions uniform, normal, pareto and paretonormal",
            ),
            ("delay 1.5us", "takes times in whole µs"),
            ("delay 20ms 2001ns order free", "takes times in whole µs"),
            ("delay 20ms rate 10M queue 50", "has one limit for queue and delay line together"),
            ("rate 10M", "counts its queue in packets and does not size it"),
            ("rate 10M queue 30KB", "counts its queue in packets; give it in packets"),
            ("rate 10M queue 50 codel", "manages no queue"),
            ("rate 10M queue 50 drop head", "loses at the tail only"),
            ("rate 10M queue 50 type wf2q+", "has no scheduler"),
            ("rate 10M queue 50 burst 3000B", "has no burst"),
            ("rate 10000001 queue 50", "give a rate that 8 divides"),
            ("outage 1s 1s", "has no outages"),
            ("after loss 1%", "loses before its queue only"),
            ("mask src-ip /24", "has no pipes of flows"),
            ("ber 1e-6", "damages Ethernet headers too"),
            ("corrupt 1%", "damages Ethernet headers too"),
            ("loss 1% duplicate 1%", "decides duplication before loss"),
            ("loss 1% loss every 5", "has one model of loss"),
            ("loss every 5", "only loses at random or by gemodel"),
            ("loss state 1% 20%", "has a 4-state model"),
            ("delay 5ms reorder 25% gap 5", "counts gaps from the last reordered packet"),
            ("delay 5ms reorder 25% by 1ms", "spares a reordered packet all of its delay"),
        ] {
            let error = commands(&config(words), "l", "r").unwrap_err().to_string();
            assert!(error.starts_with("pipe forward: the kernel's netem ") && error.contains(part), "{words}: {error}");
            assert!(error.ends_with("use --backend user"), "{error}");
        }
    }

    #[test]
    fn rules_are_refused() {
        let mut ported = config("delay 1ms");
        ported.rules[0].on.protocol = Some(6);
        assert!(
            commands(&ported, "l", "r")
                .unwrap_err()
                .to_string()
                .starts_with("rule 100: the kernel's netem has no rules")
        );
        let mut shared = config("delay 1ms");
        shared.rules[1].action = Action::Pipe { pipe: "forward".to_owned(), class: None };
        assert!(
            commands(&shared, "l", "r")
                .unwrap_err()
                .to_string()
                .starts_with("rule 200: the kernel's netem has one pipe for each way")
        );
        let contradictory = Config { memory_bytes: 1, ..Config::default() };
        assert!(commands(&contradictory, "l", "r").is_err());
    }
}
