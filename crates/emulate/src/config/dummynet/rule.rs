//! Parses ipfw's rules, as far as they apply to a bridge between two ports.

use crate::config::selection::{FIELDS, ip_length, mac, ports, prefix, protocol, tcp_flags};
use crate::config::{Action, Config, ConfigError, Direction, Match, Rule, units};

/// ipfw's increment for a rule without a number.
const STEP: u32 = 100;

/// Parses the arguments of `add`.
pub(super) fn add(words: &[&str], rules: &mut Vec<Rule>) -> Result<(), String> {
    let mut words = Left(words);
    let number = match words.0.first().and_then(|word| word.parse().ok()) {
        Some(number) => {
            words.next("a number")?;
            number
        }
        None => rules.iter().map(|rule| rule.number).max().unwrap_or(0).saturating_add(STEP),
    };
    let mut on = Match::default();
    while words.take("prob") {
        on.probability = Some(share(words.next("prob 0.5")?)?);
    }
    let action = action(&mut words)?;
    while words.take("log") {
        if words.take("logamount") {
            words.next("logamount 100")?;
        }
    }
    body(&mut words, &mut on)?;
    rules.push(Rule { number, on, action });
    Ok(())
}

/// Resolves the pipes of queues, once all are known: `queue 2` is a class of the pipe that has it.
pub(super) fn resolve_queues(config: &mut Config) -> Result<(), ConfigError> {
    for rule in &mut config.rules {
        let Action::Pipe { pipe, class: Some(class) } = &mut rule.action else { continue };
        let of = config.pipes.iter().find(|pipe| pipe.queue.classes.iter().any(|known| known.name == *class));
        let of = of.ok_or_else(|| {
            ConfigError::new(
                format!("rule {}", rule.number),
                format!("there is no queue {class}; write \"queue {class} config pipe 1 weight 10\""),
            )
        })?;
        pipe.clone_from(&of.name);
    }
    Ok(())
}

/// The remaining words of a rule.
struct Left<'a>(&'a [&'a str]);

impl<'a> Left<'a> {
    fn next(&mut self, example: &str) -> Result<&'a str, String> {
        let (first, rest) =
            self.0.split_first().ok_or_else(|| format!("the rule ends too early; {example} is expected"))?;
        self.0 = rest;
        Ok(first)
    }

    fn peek(&self) -> Option<&'a str> {
        self.0.first().copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.0 = &self.0[usize::from(is_it)..];
        is_it
    }
}

fn action(words: &mut Left<'_>) -> Result<Action, String> {
    match words.next("pipe 1")? {
        "pipe" => Ok(Action::Pipe { pipe: words.next("pipe 1")?.to_owned(), class: None }),
        // The pipe is resolved after all lines are parsed.
        "queue" => Ok(Action::Pipe { pipe: String::new(), class: Some(words.next("queue 1")?.to_owned()) }),
        "allow" | "accept" | "pass" | "permit" => Ok(Action::Pass),
        "deny" | "drop" => Ok(Action::Drop),
        "count" => Ok(Action::Count),
        other => {
            Err(format!("{other:?} is not offered as an action; there are pipe N, queue N, allow, deny and count"))
        }
    }
}

/// Parses `PROTOCOL from SOURCE [PORTS] to DESTINATION [PORTS] OPTIONS`, or options alone.
fn body(words: &mut Left<'_>, on: &mut Match) -> Result<(), String> {
    if words.0.get(1) == Some(&"from") {
        protocol(words.next("ip")?, on)?;
        words.take("from");
        on.source = prefix(words.next("any")?)?;
        on.source_ports = ports_if(words)?;
        if !words.take("to") {
            return Err("\"to\" is expected behind the source; groups and lists of addresses are not offered, write several rules".to_owned());
        }
        on.destination = prefix(words.next("any")?)?;
        on.destination_ports = ports_if(words)?;
    }
    while let Some(word) = words.peek() {
        words.0 = &words.0[1..];
        option(word, words, on)?;
    }
    Ok(())
}

fn ports_if(words: &mut Left<'_>) -> Result<Vec<(u16, u16)>, String> {
    match words.peek().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
        None => Ok(Vec::new()),
        Some(_) => ports(words.next("80")?),
    }
}

fn option(word: &str, words: &mut Left<'_>, on: &mut Match) -> Result<(), String> {
    let example = format!("{word} with its value");
    match word {
        "forward" => on.direction = Some(Direction::Forward),
        "backward" => on.direction = Some(Direction::Backward),
        // Every frame here is a bridged layer-2 frame.
        "layer2" | "bridged" => {}
        "MAC" | "mac" => {
            // ipfw puts the destination first.
            on.destination_mac = mac(words.next(&example)?)?;
            on.source_mac = mac(words.next(&example)?)?;
        }
        "iplen" => on.length = Some(ip_length(words.next(&example)?)?),
        "prob" => on.probability = Some(share(words.next(&example)?)?),
        "tcpflags" => (on.tcp_set, on.tcp_clear) = tcp_flags(words.next(&example)?)?,
        "setup" => (on.tcp_set, on.tcp_clear) = tcp_flags("syn,!ack")?,
        _ => {
            let field = FIELDS.iter().find(|field| field.ipfw.contains(&word)).ok_or_else(|| not_offered(word))?;
            (field.read)(words.next(&example)?, on)?;
        }
    }
    Ok(())
}

fn not_offered(word: &str) -> String {
    match word {
        "in" | "out" | "via" | "recv" | "xmit" => {
            format!("{word}: a bridge has two ways, not an inside; write forward (in by the left port) or backward")
        }
        "not" | "or" | "{" | "}" => format!(
            "{word}: groups are not offered; write several rules, those with less to say behind those with more"
        ),
        "keep-state" | "limit" | "established" | "check-state" => {
            format!("{word}: rules keep no state here; name ports or TCP flags")
        }
        _ => format!("{word:?} is not an option of a rule that I know"),
    }
}

fn share(text: &str) -> Result<f64, String> {
    units::fraction(text).map_err(|why| format!("prob: {why}"))
}
