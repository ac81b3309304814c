//! `match --live`: taps interfaces and matches their packets while they pass. The taps are those of `capture`, and the
//! reports are those of `match` on files; `passing` decides when a packet can be matched.

mod passing;
mod progress;

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sojourn_capture::filter;
use sojourn_rights::table::MATCH_LIVE;
use sojourn_time::{Clock, HostClock, Nanos, Time};

use super::arguments::{Direction, Match};
use super::input::{Input, Name};
use super::packet::Rule;
use super::{AHEAD, Output, ROWS, begin, show, summary};
use crate::capture::session::{Ended, Limits, Session, TapEnded, Wanted, Why};
use crate::capture::{self, rows};
use crate::failure::NotTrusted;
use crate::numbers::grouped;
use crate::place;
use crate::printed::printed;
use crate::sys::STOP;
use passing::Passing;

const SECOND: Nanos = Nanos::seconds(1);
/// The maximum wait to detect the packets' direction. If no tap sees a packet of the other by then, the taps count as
/// the device's own ports.
const LONGEST_WAIT: Nanos = Nanos::seconds(3);
/// The poll interval while packets wait for the frames of another tap.
const LOOK_AGAIN: Nanos = Nanos::millis(5);

/// Matches the packets that pass interfaces.
///
/// # Errors
/// If the request is invalid, this machine cannot carry it out, or the result must not be trusted.
pub fn run(asked: &Match) -> anyhow::Result<()> {
    let rule = Rule { key: asked.key.unwrap_or_default(), most: None, mtu: asked.mtu };
    let wanted = wanted(asked, &rule)?;
    let signal = place::stop_signal()?;
    // Matching needs little CPU time, but soon: a ring fills within seconds.
    place::raise_priority();
    let mut session = Session::open(wanted, Limits::default())?;
    session.keep_rows();
    let output = asked.output.as_deref().map(|folder| Output::create(folder, None)).transpose()?;
    MATCH_LIVE.confine()?;
    session.attach()?;
    let from = HostClock.now();
    session.down().for_each(|name| eprintln!("{}: {name} is down: nothing passes it until it is up", crate::program()));
    let taps = asked.taps().map(String::as_str).collect::<Vec<_>>().join(" and ");
    eprintln!("{}: matching {taps}; Ctrl-C ends it", crate::program());
    let inputs = asked.taps().map(|name| Input::open(rows::about(name, name, rule.key))).collect();
    let mut live = Live { asked, rule, session, passing: Passing::new(inputs, from.0), output, from };
    let why = live.pass(signal)?;
    live.end(why)
}

/// The live match of tapped interfaces.
struct Live<'a> {
    asked: &'a Match,
    rule: Rule,
    session: Session,
    passing: Passing,
    output: Option<Output>,
    from: Time,
}

impl Live<'_> {
    /// Matches until the end; returns the reason for it.
    fn pass(&mut self, signal: BorrowedFd<'_>) -> anyhow::Result<Why> {
        let until = self.asked.live.span.map_or(Time::NEVER, |span| self.from + span);
        let most = self.asked.live.count.unwrap_or(u64::MAX);
        let seen = self.session.progress();
        if self.asked.direction != Direction::Auto {
            self.begin()?;
        }
        let mut tell_at = self.from + SECOND;
        loop {
            let now = HostClock.now();
            if now >= tell_at {
                self.tell(now)?;
                tell_at = now + SECOND;
            }
            let rest = if self.passing.waits() { tell_at.min(now + LOOK_AGAIN) } else { tell_at };
            let why = self.session.step([until, rest], &STOP, signal)?;
            self.take()?;
            if let Some(why) = why {
                return Ok(why);
            }
            if seen.load(Ordering::Relaxed) >= most {
                return Ok(Why::Count);
            }
        }
    }

    /// Takes the frames that the taps delivered, and matches those for which that is possible.
    fn take(&mut self) -> anyhow::Result<()> {
        for (place, (rows, all_until)) in self.session.rows().enumerate() {
            self.passing.take(place, rows, all_until.map(|at| at.0));
        }
        if self.passing.pairs().is_empty() && self.passing.holds(AHEAD) {
            self.begin()?;
        }
        let output = &mut self.output;
        self.passing.go_on(|pairs| output.as_mut().map_or(Ok(()), |output| output.write(pairs, ROWS)))
    }

    /// Detects the direction of packets.
    fn begin(&mut self) -> anyhow::Result<()> {
        let names: Vec<Name> = self.asked.taps().map(|name| Name::of_interface(name)).collect();
        let keeps_rows = self.output.is_some();
        let pairs = begin((self.asked, None), &names, self.passing.inputs(), &self.rule, keeps_rows)?;
        *self.passing.pairs() = pairs;
        Ok(())
    }

    /// Reports the outcomes so far, and flushes the records.
    fn tell(&mut self, now: Time) -> anyhow::Result<()> {
        let is_known = self.passing.has_common() || self.passing.waits_since((now - LONGEST_WAIT).0);
        if self.passing.pairs().is_empty() && is_known {
            self.begin()?;
        }
        let dropped: Vec<u64> = self.session.dropped().collect();
        let (inputs, pairs) = self.passing.parts();
        if let Some(output) = &mut self.output {
            output.write(pairs, 1)?;
        }
        let told = progress::json((now - self.from).0, inputs, pairs, &dropped);
        let mut screen = io::stderr().lock();
        // The reader of standard error may have closed it; the match continues.
        let _ = if self.asked.json {
            writeln!(screen, "{told}")
        } else {
            writeln!(screen, "{}: {}", crate::program(), progress::text(&told))
        };
        Ok(())
    }

    /// Matches the remaining packets, and reports the results.
    fn end(mut self, why: Why) -> anyhow::Result<()> {
        self.passing.close(HostClock.now().0);
        let why = self.session.detach(why);
        self.take()?;
        if self.passing.pairs().is_empty() {
            self.begin()?;
        }
        let mut output = self.output;
        self.passing.end(|pairs| output.as_mut().map_or(Ok(()), |output| output.write(pairs, ROWS)))?;
        let (ended, _) = self.session.finish(why);
        let (outside, late) = (self.passing.outside(), self.passing.late());
        let (inputs, pairs) = self.passing.parts();
        for (input, tap) in inputs.iter_mut().zip(&ended.taps) {
            input.lost(tap.account.dropped);
        }
        let mut told = summary::of(self.asked, self.rule.key, inputs, pairs);
        told["live"] = of_live(&ended, outside, late);
        if let Some(mut output) = output {
            output.write(pairs, 1)?;
            output.finish(&told)?;
        }
        show::tell(self.asked, &told)?;
        if !self.asked.json {
            write!(printed(), "{}", text(&ended, outside, late))?;
        }
        judge(ended)
    }
}

/// Returns the taps' counters.
fn of_live(ended: &Ended, outside: u64, late: u64) -> Value {
    let mut told = capture::show::json(ended);
    (told["outside"], told["late"]) = (json!(outside), json!(late));
    told
}

/// Returns the taps' counters as text.
fn text(ended: &Ended, outside: u64, late: u64) -> String {
    let mut text = format!("\n{}", capture::show::taps_text(ended));
    let notes = [
        (outside, "packets passed while the taps were attached or detached, and are left out"),
        (late, "packets were shown so late that others were matched before them: they may look lost or unexpected"),
    ];
    for (number, what) in notes.into_iter().filter(|(number, _)| *number > 0) {
        text += &format!("  note: {} {what}\n", grouped(number));
    }
    text + &ended.findings().text()
}

/// Returns an error if a tap dropped packets: they could look lost.
fn judge(ended: Ended) -> anyhow::Result<()> {
    let found = ended.findings();
    let of_tap = |tap: &TapEnded| {
        let (dropped, packets) = (grouped(tap.account.dropped), grouped(tap.account.accepted));
        format!("the tap at {} dropped {dropped} of {packets} packets", tap.wanted.interface)
    };
    let dropped: Vec<String> = ended.taps.iter().filter(|tap| tap.account.dropped > 0).map(of_tap).collect();
    match ended.why {
        Why::Time | Why::Count | Why::Budget | Why::Asked => {}
        why => return Err(capture::failed(why)),
    }
    if !dropped.is_empty() {
        let sentence = format!("{}: they look lost or unexpected; give --ring more", dropped.join(", and "));
        return Err(NotTrusted(sentence).into());
    }
    Ok(found.refuse_useless()?)
}

fn wanted(asked: &Match, rule: &Rule) -> anyhow::Result<Vec<Wanted>> {
    let options = asked.live.tap(rule.key);
    if !options.filter.is_empty() {
        filter::check(&options.filter)?;
    }
    let tap = |name: &String| Wanted { name: name.clone(), interface: name.clone(), options: options.clone() };
    Ok(asked.taps().map(tap).collect())
}
