//! The control socket of a running instrument: a Unix socket that only its owner may use. Each request is one line of
//! JSON; each answer is one line of JSON.
//!
//! Never blocks, and answers at most one request per client per turn: the thread that answers may also forward packets.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde_json::{Value, json};

use crate::failure::WrongRequest;
use crate::remover::Remover;
use crate::sys;

/// The maximum number of concurrent clients; further connections are closed.
pub const MOST_CLIENTS: usize = 8;
/// The maximum length of a request; a longer one is refused.
pub const LONGEST_LINE_BYTES: usize = 1 << 16;
/// The maximum length of an answer: it fits the state of 2^20 flows, the most that a log follows.
const LONGEST_ANSWER_BYTES: usize = 1 << 30;
/// The timeout of a client's read and write.
const PATIENCE: Duration = Duration::from_secs(30);
/// The size of one read. [`MOST_READS`] limits the reads per turn, so that a client that sends without end cannot stall the thread.
const READ_BYTES: usize = 4096;
const MOST_READS: usize = LONGEST_LINE_BYTES / READ_BYTES + 1;
/// The longest path that the kernel accepts for a Unix socket, without the terminating zero.
const MOST_PATH_BYTES: usize = 107;
/// The system-wide default folder of sockets.
const SYSTEM_FOLDER: &str = "/run/sojourn";

/// Return the default folders of sockets: the user's own first.
pub fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    own.into_iter().chain([PathBuf::from(SYSTEM_FOLDER)]).collect()
}

/// A socket that answers requests.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
    /// The process that removes the socket at the end; `None`: this process does.
    remover: Option<Remover>,
}

struct Client<S = UnixStream> {
    stream: S,
    input: Vec<u8>,
    output: Vec<u8>,
    has_ended: bool,
    /// The request was too long. The rest is read and discarded, because an early close would lose the answer.
    is_refused: bool,
}

impl Control {
    /// Listens at a path. Replaces a stale socket, at which no process listens any more.
    ///
    /// # Errors
    /// If a process listens there, or the path cannot be used.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        make_folder(path)?;
        clear(path)?;
        // The umask restricts the socket before it exists. A chmod by path would come too late and could follow a symbolic link.
        let before = sys::set_umask(0o177);
        let bound = Short::of(path).and_then(|short| UnixListener::bind(&short.path));
        sys::set_umask(before);
        let listener = bound.with_context(|| format!("listen at {}", path.display()))?;
        let control = Self { listener, path: path.to_owned(), clients: Vec::new(), remover: None };
        control.listener.set_nonblocking(true).with_context(|| format!("listen at {}", path.display()))?;
        Ok(control)
    }

    /// Listens at a path in one of [`folders`], and removes stale sockets there that killed programs left.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_by_default(path: &Path) -> anyhow::Result<Self> {
        make_folder(path)?;
        // Lock the folder: a socket that is bound but does not listen yet looks stale.
        let alone = path.parent().map(File::open).and_then(Result::ok).filter(|folder| folder.lock().is_ok());
        if alone.is_some() {
            path.parent().into_iter().for_each(sweep);
        }
        Self::open(path)
    }

    /// Leaves removal of the socket to another process, for a program that drops the privilege to remove it.
    ///
    /// # Errors
    /// If that process cannot be started.
    pub fn leave_to_remover(&mut self) -> anyhow::Result<()> {
        self.remover = Some(Remover::start(&self.path)?);
        Ok(())
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptors to poll for requests, at most 9.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let clients = self.clients.iter().filter(|client| client.is_to_be_read()).map(|client| client.stream.as_fd());
        std::iter::once(self.listener.as_fd()).chain(clients)
    }

    /// Accepts new clients and answers at most one request of each.
    pub fn serve(&mut self, answer: &mut dyn FnMut(&[u8]) -> Value) {
        self.accept();
        self.clients.retain_mut(|client| client.serve(answer));
    }

    /// Whether a complete request has been read and not yet answered.
    pub fn is_pending(&self) -> bool {
        self.clients.iter().any(Client::is_pending)
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() < MOST_CLIENTS && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client::new(stream));
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        match self.remover.take() {
            Some(remover) => remover.finish(),
            // The socket may have been removed together with its folder.
            None => drop(fs::remove_file(&self.path)),
        }
    }
}

impl<S: Read + Write> Client<S> {
    const fn new(stream: S) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), has_ended: false, is_refused: false }
    }

    /// Reads, answers one request and writes; returns `false` when the connection is finished.
    fn serve(&mut self, answer: &mut dyn FnMut(&[u8]) -> Value) -> bool {
        if !self.read() {
            return false;
        }
        if let Some(end) = self.line_end().filter(|_| self.output.is_empty()) {
            let rest = self.input.split_off(end + 1);
            let line = std::mem::replace(&mut self.input, rest);
            self.say(&answer(&line[..end]));
        }
        if self.input.len() > LONGEST_LINE_BYTES && self.line_end().is_none() {
            self.say(&json!({ "error": "a request is longer than 64 KiB" }));
            self.input.clear();
            self.is_refused = true;
        }
        self.write() && (!self.has_ended || !self.output.is_empty() || self.line_end().is_some())
    }

    /// Whether a complete request waits and all earlier answers have been written.
    fn is_pending(&self) -> bool {
        self.output.is_empty() && self.line_end().is_some()
    }

    /// Whether the client may send more and the input buffer has room.
    fn is_to_be_read(&self) -> bool {
        !self.has_ended && self.input.len() <= LONGEST_LINE_BYTES
    }

    fn line_end(&self) -> Option<usize> {
        self.input.iter().position(|byte| *byte == b'\n')
    }

    fn say(&mut self, answer: &Value) {
        self.output.extend_from_slice(answer.to_string().as_bytes());
        self.output.push(b'\n');
    }

    /// Reads what is available, up to the limit per turn; returns `false` if the connection is broken.
    fn read(&mut self) -> bool {
        let mut chunk = [0; READ_BYTES];
        for _ in 0..MOST_READS {
            if !self.is_to_be_read() {
                break;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => self.has_ended = true,
                Ok(_) if self.is_refused => {}
                Ok(length) => self.input.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn write(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// Creates the default folder for its owner alone; any other folder must exist.
fn make_folder(path: &Path) -> anyhow::Result<()> {
    let Some(folder) = path.parent().filter(|folder| *folder == Path::new(SYSTEM_FOLDER)) else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("create {}; give --control PATH, or --control none", folder.display()))
        }
        _ => is_own(folder),
    }
}

/// Refuses a folder in which another user may create or remove sockets.
fn is_own(folder: &Path) -> anyhow::Result<()> {
    let about = fs::symlink_metadata(folder).with_context(|| format!("look at {}", folder.display()))?;
    let is_own = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0;
    if is_own { Ok(()) } else { Err(anyhow!("{}: others may write there; give --control PATH", folder.display())) }
}

/// Removes this user's stale emulator sockets. A socket that cannot be removed is ignored.
fn sweep(folder: &Path) {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_own = |found: fs::Metadata| found.uid() == rustix::process::geteuid().as_raw();
        name.starts_with("emulate-") && name.ends_with(".sock") && fs::symlink_metadata(path).is_ok_and(is_own)
    };
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_ours) {
        let _ = clear(&path);
    }
}

/// Removes a stale socket: one at which no process listens.
fn clear(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if !found.file_type().is_socket() => {
            let problem = format!("{}: it exists and is no socket; choose another place", path.display());
            return Err(WrongRequest(problem).into());
        }
        Ok(_) => {}
    }
    match connect(path) {
        Ok(_) => {
            Err(anyhow!("{}: another instrument listens there; end it first, or choose another place", path.display()))
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("remove {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("connect to {}", path.display())),
    }
}

/// Connects to the instrument that listens at a path.
///
/// # Errors
/// If no process listens there, or the caller has no permission.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    connect_within(path, PATIENCE)
}

/// As [`connect`]: where the server is stopped and others wait for it, connecting waits, too.
fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
    let short = Short::of(path)?;
    let address = SocketAddrUnix::new(&short.path)?;
    retry_on_intr(|| net::connect(&socket, &address)).map_err(|error| match error {
        Errno::AGAIN => io::Error::new(ErrorKind::TimedOut, "what listens there takes nobody"),
        error => error.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A path that fits a socket address: a long path is replaced by one through the folder's descriptor, which must stay open.
struct Short {
    path: PathBuf,
    _folder: Option<File>,
}

impl Short {
    fn of(path: &Path) -> io::Result<Self> {
        let (true, Some(folder), Some(name)) =
            (path.as_os_str().len() > MOST_PATH_BYTES, path.parent(), path.file_name())
        else {
            return Ok(Self { path: path.to_owned(), _folder: None });
        };
        let folder = File::open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Sends a request to the instrument `who` that listens at `path`, and waits for its answer.
///
/// # Errors
/// If there is no answer, or the answer is a refusal.
pub fn ask(stream: &mut UnixStream, who: &str, path: &Path, request: &Value) -> anyhow::Result<Value> {
    let answer = answer(stream, who, path, request)?;
    match answer["error"].as_str() {
        Some(problem) => Err(WrongRequest(problem.to_owned()).into()),
        None => Ok(answer),
    }
}

/// As [`ask`], but returns a refusal as an answer.
///
/// # Errors
/// If there is no answer.
pub fn answer(stream: &mut UnixStream, who: &str, path: &Path, request: &Value) -> anyhow::Result<Value> {
    exchange(stream, request, LONGEST_ANSWER_BYTES).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow!("{}: {who} does not answer", path.display()),
        ErrorKind::FileTooLarge => anyhow!("{}: an answer without end: no {who} listens there", path.display()),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            anyhow!("{}: {who} has ended", path.display())
        }
        _ => anyhow!(error).context(format!("ask {}", path.display())),
    })
}

fn exchange<S: Read + Write>(stream: &mut S, request: &Value, most_bytes: usize) -> io::Result<Value> {
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1 << 16];
    while !answer.ends_with(b"\n") {
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => answer.extend_from_slice(&chunk[..length]),
        }
        if answer.len() > most_bytes {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
    serde_json::from_slice(&answer).map_err(io::Error::other)
}

/// A connection in memory: what its other end sends, and what is written to it.
struct Memory<'a> {
    sent: &'a [u8],
    written: Vec<u8>,
}

impl Read for Memory<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.sent.read(to)
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves a client that sends these bytes and ends; returns the answers, which are the numbers of its lines.
pub fn served(sent: &[u8]) -> String {
    let mut client = Client::new(Memory { sent, written: Vec::new() });
    let mut lines = 0;
    while client.serve(&mut |_| {
        lines += 1;
        json!(lines)
    }) {}
    String::from_utf8_lossy(&client.stream.written).into_owned()
}

/// Asks an instrument that answers with these bytes and ends.
///
/// # Errors
/// If they are no answer.
pub fn answered(sent: &[u8], most_bytes: usize) -> io::Result<Value> {
    exchange(&mut Memory { sent, written: Vec::new() }, &Value::Null, most_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sojourn-control-{}-{name}", std::process::id()))
    }

    fn echo(line: &[u8]) -> Value {
        json!({ "ok": true, "bytes": line.len() })
    }

    /// Sends a request and serves it in the same thread.
    fn asked(control: &mut Control, sent: &[u8]) -> String {
        let mut stream = UnixStream::connect(control.path()).unwrap();
        stream.write_all(sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        for _ in 0..4 {
            control.serve(&mut echo);
        }
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_line_is_answered_and_only_the_owner_may_use_the_socket() {
        let path = path("lines");
        let mut control = Control::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            asked(&mut control, b"abc\n\nde\n"),
            "{\"bytes\":3,\"ok\":true}\n{\"bytes\":0,\"ok\":true}\n{\"bytes\":2,\"ok\":true}\n"
        );
        assert!(control.clients.is_empty());
        drop(control);
        assert!(!path.exists(), "it is removed at the end");
    }

    #[test]
    fn next_emulator_removes_sockets_of_dead_emulators_and_no_other_file() {
        let folder = path("folder");
        fs::create_dir(&folder).unwrap();
        let [dead, alive, other, next] =
            ["emulate-a-b.sock", "emulate-c-d.sock", "other.sock", "emulate-e-f.sock"].map(|name| folder.join(name));
        drop(UnixListener::bind(&dead).unwrap());
        drop(UnixListener::bind(&other).unwrap());
        let plain = folder.join("emulate-file.sock");
        fs::write(&plain, "").unwrap();
        let listening = Control::open_by_default(&alive).unwrap();
        assert!(!dead.exists());
        let _next = Control::open_by_default(&next).unwrap();
        assert!(listening.path().exists() && other.exists() && plain.exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn symbolic_link_at_the_socket_path_is_neither_followed_nor_replaced() {
        let (path, theirs) = (path("link"), path("theirs"));
        fs::write(&theirs, "theirs").unwrap();
        let mode = fs::metadata(&theirs).unwrap().mode();
        std::os::unix::fs::symlink(&theirs, &path).unwrap();
        assert!(Control::open(&path).is_err());
        assert_eq!(
            (fs::read_to_string(&theirs).unwrap(), fs::metadata(&theirs).unwrap().mode()),
            ("theirs".into(), mode)
        );
        fs::remove_file(path).unwrap();
        fs::remove_file(theirs).unwrap();
    }

    #[test]
    fn connecting_to_a_server_that_takes_nobody_times_out() {
        let path = path("full");
        let listener = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        net::listen(&listener, 0).unwrap();
        let patience = Duration::from_millis(20);
        let waiting: Vec<_> = (0..2).map(|_| connect_within(&path, patience)).collect();
        assert!(waiting[0].is_ok());
        assert_eq!(waiting[1].as_ref().unwrap_err().kind(), ErrorKind::TimedOut);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn server_that_does_not_answer_or_never_ends_its_answer_times_out() {
        let path = path("silent");
        let listener = UnixListener::bind(&path).unwrap();
        let mut stream = connect(&path).unwrap();
        assert_eq!(stream.read_timeout().unwrap(), Some(PATIENCE));
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let told = ask(&mut stream, "the emulator", &path, &json!({})).unwrap_err().to_string();
        assert!(told.ends_with("the emulator does not answer"), "{told}");
        let mut stream = connect(&path).unwrap();
        let server = std::thread::spawn(move || {
            let mut clients = [listener.accept().unwrap().0, listener.accept().unwrap().0];
            while clients[1].write_all(&[b'x'; 1 << 16]).is_ok() {}
        });
        let told = exchange(&mut stream, &json!({}), 1 << 20).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::FileTooLarge);
        drop(stream);
        server.join().unwrap();
        fs::remove_file(path).unwrap();
    }

    /// Uses the real limit, and therefore more than 1 GiB of memory.
    #[test]
    #[ignore = "proof: an answer of more than 1 GiB"]
    fn answer_above_the_maximum_length_is_refused() {
        let path = path("endless");
        let listener = UnixListener::bind(&path).unwrap();
        let mut stream = connect(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut client, chunk) = (listener.accept().unwrap().0, [b'x'; 1 << 16]);
            let mut sent = 0;
            while client.write_all(&chunk).is_ok() {
                sent += chunk.len();
            }
            sent
        });
        let told = answer(&mut stream, "the emulator", &path, &json!({})).unwrap_err().to_string();
        assert!(told.ends_with("an answer without end: no the emulator listens there"), "{told}");
        drop(stream);
        assert!(server.join().unwrap() >= LONGEST_ANSWER_BYTES);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn endless_request_is_refused() {
        let path = path("long");
        let mut control = Control::open(&path).unwrap();
        let told = asked(&mut control, &vec![b'x'; LONGEST_LINE_BYTES + 5_000]);
        assert_eq!(told, "{\"error\":\"a request is longer than 64 KiB\"}\n");
    }

    #[test]
    fn client_with_many_requests_gets_one_answer_per_turn_after_reading_the_previous_one() {
        let path = path("much");
        let mut control = Control::open(&path).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&b"x\n".repeat(40_000)).unwrap();
        let mut answered = 0;
        // Larger than a socket buffer.
        let long = json!("y".repeat(1 << 20));
        let mut turn = |control: &mut Control| {
            control.serve(&mut |_| {
                answered += 1;
                long.clone()
            });
            answered
        };
        assert_eq!([turn(&mut control), turn(&mut control), turn(&mut control)], [1, 1, 1]);
        assert!(!control.is_pending(), "it is the client's turn");
        assert_eq!(control.descriptors().count(), 1, "nor does it wake anybody by what nobody reads");
        while turn(&mut control) < 2 {
            assert!(stream.read(&mut [0; 1 << 16]).unwrap() > 0);
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let path = path("stale");
        drop(UnixListener::bind(&path).unwrap());
        let control = Control::open(&path).unwrap();
        let told = Control::open(&path).err().unwrap().to_string();
        assert!(told.contains("another instrument listens there"), "{told}");
        drop(control);
        fs::write(&path, "mine").unwrap();
        let told = Control::open(&path).err().unwrap().to_string();
        assert!(told.contains("is no socket"), "{told}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn socket_path_may_exceed_the_limit_of_the_kernel() {
        let folder = path(&"long".repeat(40));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("control.sock");
        let mut control = Control::open(&path).unwrap();
        let mut stream = connect(&path).unwrap();
        stream.write_all(b"abc\n").unwrap();
        control.serve(&mut echo);
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"{\"bytes\":");
        assert!(Control::open(&path).is_err(), "somebody listens there");
        drop(control);
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn clients_above_the_limit_are_refused() {
        let path = path("many");
        let mut control = Control::open(&path).unwrap();
        let streams: Vec<_> = (0..MOST_CLIENTS + 3).map(|_| UnixStream::connect(&path).unwrap()).collect();
        control.serve(&mut echo);
        assert_eq!(control.clients.len(), MOST_CLIENTS);
        assert_eq!(control.descriptors().count(), MOST_CLIENTS + 1);
        drop(streams);
        control.serve(&mut echo);
        assert!(control.clients.is_empty());
    }
}
