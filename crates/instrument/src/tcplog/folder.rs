//! The folder of a log: refused if it holds a log; a header at the start, a footer at the end.

use std::fmt::Display;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use sojourn_record::{failure, private, sync_folder};
use sojourn_tcplog::tables::LISTED;
use sojourn_time::{Clock, HostClock, Time};

use super::programs::Facts;
use crate::bounded;
use crate::failure::{WrongRequest, of_path};

pub const HEADER: &str = "header.json";
pub const FOOTER: &str = "footer.json";
pub const RECORDS: &str = "records";
pub const SOCKET: &str = "control.sock";
/// The writer's name in file names of a log that belongs to no study.
pub const WHO: &str = "tcplog";
/// The maximum number of values in a footer, which lists at most [`LISTED`] flows, or in a header, with at most [`MOST_WORDS`].
const MOST_VALUES: usize = 4 * LISTED;
/// The maximum number of words of a command, plus the commas and brackets in them; the kernel allows more.
pub const MOST_WORDS: usize = 3 * LISTED;
/// The maximum number of objects and lists; headers and footers contain about ten. In memory each takes a hundred times
/// the length of `{"":0}`.
const MOST_COLLECTIONS: usize = 1_000;
/// The folder of the kernel's version and name.
const KERNEL: &str = "/proc/sys/kernel";

/// Creates the folder of a new log.
///
/// # Errors
/// If it holds a log already, or cannot be written.
pub fn create(out: &Path) -> anyhow::Result<()> {
    private::create_folder(out).map_err(|error| of_path("create", out, error))?;
    refuse_one_in_use(out)?;
    let records = out.join(RECORDS);
    private::create_folder(&records).with_context(|| format!("create {}", records.display()))
}

/// Refuses a folder that holds a log.
///
/// # Errors
/// If it does.
pub fn refuse_one_in_use(out: &Path) -> anyhow::Result<()> {
    if let Some(found) = what_is_there(out) {
        let problem = format!(
            "{}: it holds {found} of an earlier log, and logs are written once: choose another folder",
            out.display()
        );
        return Err(WrongRequest(problem).into());
    }
    Ok(())
}

fn what_is_there(out: &Path) -> Option<String> {
    let of_a_log = |name: &str| {
        [HEADER, FOOTER].contains(&name)
            || name.starts_with("spool-")
            || (name.starts_with("tcp_") && name.ends_with(".arrow"))
    };
    [out.to_owned(), out.join(RECORDS)]
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| of_a_log(name))
}

/// Writes a file completely or not at all, even across a power failure: the old file is replaced only after the new one is on disk.
///
/// # Errors
/// If it fails.
pub fn write_whole(path: &Path, value: &Value) -> anyhow::Result<()> {
    let temporary = path.with_extension("json.part");
    let write = || {
        // Create a new file: an existing name could be a symbolic link.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private::create_file(&temporary)?;
        file.write_all(format!("{value:#}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error: std::io::Error| {
        let _ = fs::remove_file(&temporary);
        anyhow::Error::from(failure("write", path, error))
    })?;
    Ok(sync_folder(path.parent().unwrap_or(Path::new("")))?)
}

/// Reads a header or footer.
///
/// # Errors
/// If there is none, or it exceeds the limits of length and size.
pub fn read(path: &Path) -> anyhow::Result<Value> {
    let wrong = |error: &dyn Display| {
        WrongRequest(format!("{}: it is not what a log begins or ends with: {error}", path.display())).into()
    };
    let bytes = bounded::read(path).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => wrong(&error),
        _ => of_path("open", path, error),
    })?;
    value_of(&bytes).map_err(|error| wrong(&error))
}

/// Parses the bytes of a header or footer.
///
/// # Errors
/// If they are invalid, or would need far more memory than their length.
pub fn value_of(bytes: &[u8]) -> Result<Value, String> {
    let (values, collections) = size_of(bytes);
    if values > MOST_VALUES {
        return Err(format!("it has {values} values, and none has more than {MOST_VALUES}"));
    }
    if collections > MOST_COLLECTIONS {
        return Err(format!("it has {collections} objects and lists, and none has more than {MOST_COLLECTIONS}"));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

/// Returns upper limits of the values in a JSON text, and of objects and lists among them, by counting commas and
/// opening brackets outside of strings.
fn size_of(bytes: &[u8]) -> (usize, usize) {
    let (mut is_string, mut is_escaped) = (false, false);
    let (mut values, mut collections) = (1, 0);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b',' => values += 1,
            b'[' | b'{' => (values, collections) = (values + 1, collections + 1),
            _ => {}
        }
    }
    (values, collections)
}

/// Returns the header of a log.
pub fn header(facts: &Facts, options: &Value, command: Option<Vec<String>>) -> Value {
    let now = Moment::now();
    let kernel = |file: &str| fs::read_to_string(Path::new(KERNEL).join(file)).unwrap_or_default().trim().to_owned();
    json!({
        "tcplog": 1,
        "started": now.iso(),
        "enable_time_secs": now.seconds,
        "enable_time_usecs": now.nanos / 1_000,
        "kernel": kernel("osrelease"),
        "machine": std::env::consts::ARCH,
        "hostname": kernel("hostname"),
        "boot_id": super::export::boot().trim(),
        "hz": HostClock.jiffies_per_second(),
        "simulated": facts.is_simulated,
        "clock": facts.clock,
        "tai_minus_utc_s": HostClock.tai_offset().0.0 / 1_000_000_000,
        "tai_minus_monotonic_ns": HostClock.monotonic_offset().0,
        "fields": facts.fields,
        "absent": facts.absent,
        "unasked": facts.unasked,
        "tcp_flag_names": FLAG_NAMES,
        "options": options,
        "attach": facts.attach,
        "programs": facts.programs,
        "careful": facts.refusal,
        "instrument": env!("CARGO_PKG_VERSION"),
        "profile": crate::PROFILE,
        "command": command,
    })
}

/// The names of the bits of the column `flags`, from the lowest.
pub const FLAG_NAMES: [&str; 20] = [
    "timestamps",
    "sack",
    "window-scaling",
    "dsack",
    "ecn",
    "ecn-queue-cwr",
    "ecn-demand-cwr",
    "ecn-seen",
    "nagle-off",
    "cork",
    "cwnd-limited",
    "app-limited",
    "frto",
    "out-of-order",
    "undo",
    "tlp",
    "in-use",
    "syn-data",
    "fastopen",
    "repair",
];

/// A calendar time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970, UTC.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: i64,
}

impl Moment {
    /// Returns the current time.
    pub fn now() -> Self {
        Self::of(HostClock.now())
    }

    /// Converts a time of `CLOCK_TAI`.
    pub fn of(tai: Time) -> Self {
        let utc = tai.0 - HostClock.tai_offset().0.0;
        Self { seconds: utc.div_euclid(1_000_000_000), nanos: utc.rem_euclid(1_000_000_000) }
    }

    /// Formats "2026-11-22T01:30:00.123456Z".
    pub fn iso(self) -> String {
        let (year, month, day) = date(self.seconds.div_euclid(86_400));
        let second = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", self.nanos / 1_000)
    }
}

/// Returns the Gregorian date of a day since 1970. Years are counted from 1 March of year 0, so that leap days come last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_formatted_as_iso_8601() {
        for (seconds, iso) in [
            (0, "1970-01-01T00:00:00.000001Z"),
            (951_782_399, "2000-02-28T23:59:59.000001Z"),
            (951_782_400, "2000-02-29T00:00:00.000001Z"),
            (1_795_312_800, "2026-11-22T02:00:00.000001Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000001Z"),
        ] {
            assert_eq!(Moment { seconds, nanos: 1_999 }.iso(), iso);
        }
    }

    #[test]
    fn header_above_the_maximum_length_is_refused_in_one_sentence() {
        let path = bounded::too_long("header");
        let error = read(&path).unwrap_err();
        assert!(error.to_string().ends_with("it has more than 64 MiB"), "{error}");
        assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
        fs::remove_file(path).unwrap();
    }

    /// 2 MiB of such objects needed 199 MiB of memory before the limit.
    #[test]
    fn a_footer_takes_little_more_memory_than_it_is_long() {
        let refused = |text: String| value_of(text.as_bytes()).expect_err("is refused");
        let objects = vec![r#"{"":0}"#; 300_000].join(",");
        assert_eq!(
            refused(format!(r#"{{"why":"signal","flow_list":[{objects}]}}"#)),
            "it has 600003 values, and none has more than 262144"
        );
        let told = refused(format!("[{}]", vec!["[]"; 1_000].join(",")));
        assert_eq!(told, "it has 1001 objects and lists, and none has more than 1000");
        let flow = r#"fd00::1;40000-fd00::2;5201 [{,\"\\"#;
        let whole = json!({ "why": "signal", "flow_list": vec![flow; LISTED], "totals": { "in": {}, "out": {} } });
        assert_eq!(value_of(format!("{whole:#}").as_bytes()), Ok(whole), "as long as any of ours");
        let header = json!({ "command": vec!["word"; MOST_WORDS], "fields": vec!["field"; 1_000] });
        assert_eq!(value_of(header.to_string().as_bytes()), Ok(header), "of the longest command");
    }

    #[test]
    fn folder_with_a_log_is_refused_and_the_log_is_kept() {
        let out = std::env::temp_dir().join(format!("sojourn-tcplog-folder-{}", std::process::id()));
        create(&out).unwrap();
        create(&out).unwrap();
        for file in ["header.json", "spool-000.tcplog", "records/tcp_samples-tcplog-000.arrow"] {
            let path = out.join(file);
            fs::write(&path, "mine").unwrap();
            let error = create(&out).unwrap_err();
            assert!(error.to_string().contains("earlier log"), "{error}");
            assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
            assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
            fs::remove_file(path).unwrap();
        }
        write_whole(&out.join(FOOTER), &json!({ "why": "signal" })).unwrap();
        assert_eq!(read(&out.join(FOOTER)).unwrap()["why"], "signal");
        assert!(!out.join("footer.json.part").exists());
        let theirs = out.join("theirs");
        fs::write(&theirs, "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, out.join("footer.json.part")).unwrap();
        write_whole(&out.join(FOOTER), &json!({ "why": "duration" })).unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
        fs::remove_dir_all(out).unwrap();
    }
}
