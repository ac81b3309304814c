//! Standard output of commands that print their result and end. A reader that has seen enough, such as `head`, closes the
//! pipe: that is no error, and the exit status is the command's. Programs that answer requests do not print here: their
//! reader's end is theirs.

use std::io::{self, ErrorKind, StdoutLock, Write};

/// Returns standard output, whose reader may close it.
pub fn printed() -> Printed<StdoutLock<'static>> {
    Printed { output: io::stdout().lock(), is_closed: false }
}

/// An output that drops what is written after its reader has closed it.
#[derive(Debug)]
pub struct Printed<W> {
    output: W,
    is_closed: bool,
}

impl<W> Printed<W> {
    /// Whether the reader has closed it.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn unless_closed<T>(&mut self, done: io::Result<T>, instead: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(instead)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for Printed<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let done = self.output.write(octets);
        self.unless_closed(done, octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.output.flush();
        self.unless_closed(done, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let mut output = Printed { output: Failing(ErrorKind::BrokenPipe), is_closed: false };
        assert!(!output.is_closed());
        writeln!(output, "a line").unwrap();
        output.flush().unwrap();
        assert!(output.is_closed());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut output = Printed { output: Failing(ErrorKind::StorageFull), is_closed: false };
        assert_eq!(writeln!(output, "a line").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(output.flush().unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(!output.is_closed());
    }
}
