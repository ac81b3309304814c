//! Parses whole configurations in the syntax of dummynet and ipfw.
//!
//! `pipe 1 config bw 10Mbit/s delay 20 plr 0.01`, `queue 2 config pipe 1 weight 10`, `sched 1 config type wf2q+`,
//! `add 100 pipe 1 tcp from 10.0.0.0/8 to any dst-port 80 forward`, optionally with a leading `ipfw` or `dnctl`. Our
//! own additions are `seed N`, `memory SIZE` and `budget T`, and every word of a pipe. Anything unsupported is refused
//! with a message that says what to write instead.

mod rule;

use std::path::Path;

use super::words::{Dialect, Draft, Words, split};
use super::{Config, ConfigError, Pipe, units};

/// Parses lines of dummynet and ipfw. Relative paths start at the working directory.
///
/// # Errors
/// Names the line and the problem.
pub fn config_from_dummynet(text: &str) -> Result<Config, ConfigError> {
    parse(text, "", Path::new(""))
}

/// Parses lines; `place` is the file's name, and relative paths start at `folder`.
pub(super) fn parse(text: &str, place: &str, folder: &Path) -> Result<Config, ConfigError> {
    let mut reader = Reader { config: Config::default(), folder, queues: Vec::new(), configured: Vec::new() };
    let at = |number: usize, problem: String| ConfigError::new(format!("{place} line {number}").trim_start(), problem);
    for (number, line) in super::files::lines(text) {
        reader.line(number, line).map_err(|problem| at(number, problem))?;
    }
    // Queues and schedulers may precede their pipe.
    for (number, words) in std::mem::take(&mut reader.queues) {
        reader.flow(&words).map_err(|problem| at(number, problem))?;
    }
    rule::resolve_queues(&mut reader.config)?;
    Ok(reader.config)
}

struct Reader<'a> {
    config: Config,
    folder: &'a Path,
    /// Lines of queues and schedulers, with their numbers.
    queues: Vec<(usize, Vec<String>)>,
    configured: Vec<String>,
}

impl Reader<'_> {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        let line = line.split(" //").next().unwrap_or(line);
        let mut words = split(line)?;
        words.drain(..tool(&words));
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        match texts[..] {
            ["add", ..] => rule::add(&texts[1..], &mut self.config.rules),
            ["pipe", name, "config", ..] => self.pipe(name, words[3..].to_vec()),
            ["queue" | "sched", _, "config", ..] => {
                self.queues.push((number, words));
                Ok(())
            }
            // Nothing to flush: the configuration starts empty.
            ["flush"] | ["pipe" | "queue" | "sched", "flush"] => Ok(()),
            ["sysctl", setting] | [setting] if setting.contains('=') => self.setting(setting),
            [name, value] => self.own(name, value),
            _ => Err(format!(
                "{line:?} is not a line that I know; lines begin with pipe, queue, sched, add, seed, memory or budget"
            )),
        }
    }

    fn setting(&mut self, setting: &str) -> Result<(), String> {
        match setting.split_once('=') {
            Some(("net.inet.ip.fw.one_pass", "1")) => Ok(()),
            Some(("net.inet.ip.fw.one_pass", _)) => Err(
                "net.inet.ip.fw.one_pass=0 is not offered: a packet goes through one pipe; run a second emulator behind this one"
                    .to_owned(),
            ),
            Some((name, _)) if name.starts_with("net.inet.ip.dummynet.") => {
                Err(format!("{name} is not offered: limits belong to each queue here; leave it out"))
            }
            _ => Err(format!("{setting:?} is not a known setting; there is net.inet.ip.fw.one_pass=1")),
        }
    }

    fn own(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "seed" => self.config.seed = units::whole(value).map_err(|why| format!("seed: {why}"))?,
            "memory" => self.config.memory_bytes = units::size(value).map_err(|why| format!("memory: {why}"))?,
            "budget" => self.config.budget = units::time(value).map_err(|why| format!("budget: {why}"))?,
            _ => {
                return Err(format!(
                    "{name:?} is not a line that I know; lines begin with pipe, queue, sched, add, seed, memory or budget"
                ));
            }
        }
        Ok(())
    }

    fn pipe(&mut self, name: &str, words: Vec<String>) -> Result<(), String> {
        if self.configured.iter().any(|known| known == name) {
            return Err(format!("pipe {name} is configured twice; put it on one line"));
        }
        self.configured.push(name.to_owned());
        let mut draft = Draft::new(&Pipe { name: name.to_owned(), ..Pipe::default() });
        draft.read(&mut Words::new(words, Dialect::Dummynet, self.folder))?;
        self.config.pipes.push(draft.finish()?);
        Ok(())
    }

    /// Parses `queue N config pipe M …` and `sched N config …` into their pipe.
    fn flow(&mut self, words: &[String]) -> Result<(), String> {
        let [kind, name, _, rest @ ..] = words else { return Ok(()) };
        let (pipe, rest) = match rest {
            [of, pipe, rest @ ..] if of == "pipe" || of == "sched" => (pipe, rest),
            _ if kind == "sched" => (name, rest),
            _ => return Err(format!("queue {name}: of which pipe? write \"queue {name} config pipe 1 weight 10\"")),
        };
        let found = self.config.pipes.iter_mut().find(|known| known.name == *pipe);
        let found = found
            .ok_or_else(|| format!("{kind} {name}: there is no pipe {pipe}; configure it on a line of its own"))?;
        let mut words = Words::new(rest.to_vec(), Dialect::Dummynet, self.folder);
        let mut draft = Draft::new(found);
        if kind == "queue" {
            class(name, &mut draft, &mut words)?
        } else {
            draft.read(&mut words)?
        }
        *found = draft.finish()?;
        Ok(())
    }
}

/// Parses the options of a queue into a class.
fn class(name: &str, draft: &mut Draft, words: &mut Words) -> Result<(), String> {
    let weight =
        words.take("weight").then(|| words.argument("weight", "10")).transpose()?.unwrap_or_else(|| "1".to_owned());
    let mut head = Words::new(vec![name.to_owned(), "weight".to_owned(), weight], Dialect::Dummynet, Path::new(""));
    draft.word("class", &mut head)?;
    while let Some(word) = words.any() {
        match word.as_str() {
            "queue" | "red" | "gred" | "codel" | "pie" => draft.word(&word, words)?,
            "buckets" => drop(words.argument("buckets", "64")?),
            "droptail" | "noerror" => {}
            "weight" => {
                return Err(format!(
                    "queue {name}: write the weight first: \"queue {name} config pipe 1 weight 10 …\""
                ));
            }
            "mask" => {
                return Err(format!(
                    "queue {name}: a queue for each flow is not offered by mask; a pipe of type wf2q+ without queues gives each flow the same share"
                ));
            }
            other => return Err(format!("queue {name}: {other:?} belongs to its pipe, or is not known")),
        }
    }
    Ok(())
}

/// Returns the number of words that are the tool's name and its switches.
fn tool(words: &[String]) -> usize {
    if !matches!(words.first().map(String::as_str), Some("ipfw" | "dnctl" | "/sbin/ipfw" | "${fwcmd}")) {
        return 0;
    }
    1 + words[1..].iter().take_while(|word| word.starts_with('-')).count()
}

#[cfg(test)]
mod tests;
