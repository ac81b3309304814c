//! `emulate explain`: prints how a request is understood, and does nothing else.

use std::io::Write;

use serde_json::{Value, json};
use sojourn_emulate::config::{Pipe, to_stages, to_words};

use super::arguments::Explain;
use super::{asked, show};
use crate::printed::printed;

/// Prints the meaning of options, configuration strings and files.
///
/// # Errors
/// If a part is not understood, or parts contradict each other.
pub fn run(asked: &Explain) -> anyhow::Result<()> {
    let ports: Vec<_> = asked.ports.iter().map(String::as_str).collect();
    asked::check_ports(&ports)?;
    asked::check_both(&ports)?;
    let config = asked::config(&asked.asked)?;
    let mut output = printed();
    if asked.how.json {
        let pipes: Vec<_> = config.pipes.iter().map(explained).collect();
        let rules: Vec<_> = show::told_rules(&config.rules).iter().map(ToString::to_string).collect();
        writeln!(output, "{}", json!({ "event": "config", "config": config, "pipes": pipes, "rules": rules }))?;
        return Ok(());
    }
    if config.pipes.is_empty() {
        writeln!(output, "no pipe: a plain bridge")?;
    }
    for pipe in &config.pipes {
        let words = to_words(pipe);
        writeln!(output, "{}: {}", pipe.name, if words.is_empty() { "(idle)" } else { &words })?;
    }
    for rule in show::told_rules(&config.rules) {
        writeln!(output, "rule {rule}")?;
    }
    Ok(())
}

fn explained(pipe: &Pipe) -> Value {
    let stages: Vec<_> =
        to_stages(pipe).into_iter().map(|(stage, words)| json!({ "stage": stage, "words": words })).collect();
    json!({ "name": pipe.name, "words": to_words(pipe), "stages": stages })
}
