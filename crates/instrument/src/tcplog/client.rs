//! `tcplog status` and `tcplog set`: clients of a running log; for a log that has ended, they read its footer.

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use sojourn_tcplog::spool;

use super::arguments::{Set, Status};
use super::asked;
use super::log_options::LogOptions;
use super::run::summary;
use super::{folder, show};
use crate::control;
use crate::failure::WrongRequest;
use crate::numbers::grouped;
use crate::printed::printed;

const WHO: &str = "the log";

/// Shows the counters so far, or those of a log that has ended.
///
/// # Errors
/// If there is no log.
pub fn status(asked: &Status) -> anyhow::Result<()> {
    let told = match Conversation::open(&asked.out)? {
        Some(mut log) => log.ask(&json!({ "do": "status" }))?,
        None => {
            let footer = asked.out.join(folder::FOOTER);
            if !footer.exists() {
                return Err(unfinished(&asked.out));
            }
            folder::read(&footer)?
        }
    };
    let mut output = printed();
    if asked.json {
        writeln!(output, "{told}")?;
    } else {
        write!(output, "{}", shown(&told))?;
    }
    Ok(())
}

/// Changes the options of a running log.
///
/// # Errors
/// If no log answers, or the change is refused.
pub fn set(asked: &Set) -> anyhow::Result<()> {
    let mut request = json!(resolved(&asked.request)?);
    let has_options = request.as_object().is_some_and(|request| !request.is_empty());
    if !has_options && !asked.enable && !asked.disable && !asked.dump {
        let problem = "nothing to set: try --ppl 10, --port all, --disable (see `tcplog set --help`)";
        return Err(WrongRequest(problem.to_owned()).into());
    }
    let mut log = Conversation::open(&asked.out)?.ok_or_else(|| not_running(&asked.out))?;
    let mut output = printed();
    if has_options || asked.enable || asked.disable {
        request["do"] = json!("set");
        if asked.enable || asked.disable {
            request["enabled"] = json!(asked.enable);
        }
        let answer = log.ask(&request)?;
        for said in answer["said"].as_array().into_iter().flatten() {
            eprintln!("{}: {}", crate::program(), said.as_str().unwrap_or_default());
        }
        match asked.json {
            true => writeln!(output, "{}", answer["options"])?,
            false => writeln!(output, "{}", options(&answer["options"]))?,
        }
    }
    if asked.dump {
        let answer = log.ask(&json!({ "do": "dump" }))?;
        match asked.json {
            true => writeln!(output, "{}", json!({ "event": "dumped", "records": answer["records"] }))?,
            false => {
                writeln!(output, "{} records written", grouped(answer["records"].as_u64().unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}

/// Resolves a network namespace to its cookie here: a running log has dropped the privilege to enter namespaces.
fn resolved(request: &LogOptions) -> anyhow::Result<LogOptions> {
    let netns = request.netns.as_deref().map(asked::netns_word).transpose()?;
    Ok(LogOptions { netns, ..request.clone() })
}

/// A connection to a running log.
pub struct Conversation {
    stream: UnixStream,
    path: PathBuf,
}

impl Conversation {
    /// Connects; `None` if no process listens.
    ///
    /// # Errors
    /// If permission is denied, or there is no such folder.
    pub fn open(out: &Path) -> anyhow::Result<Option<Self>> {
        let path = out.join(folder::SOCKET);
        match control::connect(&path) {
            Ok(stream) => Ok(Some(Self { stream, path })),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound && out.join(folder::HEADER).exists() => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(WrongRequest(format!("{}: no log is there", out.display())).into())
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(anyhow!("{}: another user runs this log: ask as that user, such as with sudo", out.display()))
            }
            Err(error) => Err(error).with_context(|| format!("connect to {}", path.display())),
        }
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    /// If there is no answer, or the answer is a refusal.
    pub fn ask(&mut self, request: &Value) -> anyhow::Result<Value> {
        control::ask(&mut self.stream, WHO, &self.path, request)
    }
}

/// Returns the error, with advice, of a log without a footer that no process writes any more.
pub fn unfinished(out: &Path) -> anyhow::Error {
    let is_ending = spool::is_held(out);
    let out = out.display();
    if is_ending {
        return anyhow!("{out}: the log is just ending: its records are being made");
    }
    anyhow!(
        "{out}: the log was killed before it could end; `sojourn tcplog recover {out}` makes records of what is there"
    )
}

/// Returns the error of a log that has ended.
pub fn not_running(out: &Path) -> anyhow::Error {
    WrongRequest(format!("{}: this log has ended", out.display())).into()
}

/// Formats the status or footer of a log as text.
pub fn shown(told: &Value) -> String {
    if !told["why"].is_null() {
        return format!("ended: {}\n{}", told["why"].as_str().unwrap_or_default(), summary(told));
    }
    let number = |name: &str| grouped(told[name].as_u64().unwrap_or_default());
    let (_, law) = show::law(&told["totals"]);
    let fallback = told["careful"].as_str().map(|why| format!("{}\n", show::fallback(why))).unwrap_or_default();
    let removed = show::removed(told).unwrap_or_default();
    let triggered = show::triggered(told).unwrap_or_default();
    let not_run = show::not_run(told).unwrap_or_default();
    format!(
        "{}{} records of {} flows, {} of them open; {} beside packets; {} missing; logging took {:.2} s of a CPU\n{law}\n{removed}{triggered}{not_run}{fallback}{}\n",
        show::table(&told["totals"]),
        number("records"),
        number("flows"),
        number("flows_open"),
        number("events"),
        number("missing"),
        told["logger_cpu_s"].as_f64().unwrap_or_default(),
        options(&told["options"]),
    )
}

/// Formats the options in one line: those that differ from the defaults.
fn options(options: &Value) -> String {
    let all = json!(asked::Asked::default());
    let changed =
        options.as_object().into_iter().flatten().filter(|(name, value)| *name != "enabled" && all[*name] != **value);
    let words: Vec<String> = changed.map(|(name, value)| format!("{} {value}", name.replace('_', "-"))).collect();
    let state = if options["enabled"] == json!(true) { "enabled" } else { "disabled" };
    std::iter::once(state.to_owned()).chain(words).collect::<Vec<_>>().join(", ")
}
