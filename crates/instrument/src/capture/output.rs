//! The output file of frames: counts bytes, and compresses where requested.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use lz4_flex::frame::FrameEncoder;

const BUFFER_BYTES: usize = 1 << 20;

/// The output, plain or compressed.
pub enum Output {
    /// Uncompressed.
    Plain(BufWriter<Counting>),
    /// Compressed by lz4.
    Compressed(Box<FrameEncoder<BufWriter<Counting>>>),
}

/// A file that counts the bytes written to it.
#[derive(Debug)]
pub struct Counting {
    file: File,
    bytes: u64,
}

impl Output {
    /// Writes into a file.
    pub fn new(file: File, is_compressed: bool) -> Self {
        let buffered = BufWriter::with_capacity(BUFFER_BYTES, Counting { file, bytes: 0 });
        if is_compressed { Self::Compressed(Box::new(FrameEncoder::new(buffered))) } else { Self::Plain(buffered) }
    }

    /// Returns the length of the file with its write buffer, without bytes that the encoder has not yet compressed.
    pub fn length(&self) -> u64 {
        let buffered = match self {
            Self::Plain(buffered) => buffered,
            Self::Compressed(encoder) => encoder.get_ref(),
        };
        buffered.get_ref().bytes + buffered.buffer().len() as u64
    }

    /// Completes the file; on return, its contents survive a power failure.
    pub fn finish(self) -> io::Result<()> {
        let buffered = match self {
            Self::Plain(buffered) => buffered,
            Self::Compressed(encoder) => encoder.finish().map_err(io::Error::from)?,
        };
        buffered.into_inner().map_err(io::IntoInnerError::into_error)?.file.sync_all()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(buffered) => buffered.write(bytes),
            Self::Compressed(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(buffered) => buffered.flush(),
            Self::Compressed(encoder) => encoder.flush().and_then(|()| encoder.get_mut().flush()),
        }
    }
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use sojourn_port::pcap::{Capture, NgWriter, open};
    use sojourn_time::Time;

    use super::*;

    #[test]
    fn compressed_capture_file_is_lossless_and_shorter() {
        let lengths = [false, true].map(|is_compressed| {
            let path = std::env::temp_dir().join(format!("sojourn-output-{}-{is_compressed}", std::process::id()));
            let file = File::create(&path).unwrap();
            let mut writer = NgWriter::new(Output::new(file, is_compressed)).unwrap();
            for at in 0..1_000 {
                writer.write(Time(at), &[7; 100]).unwrap();
                if at == 500 {
                    writer.flush().unwrap();
                }
            }
            writer.finish().unwrap().finish().unwrap();
            let mut reader = Capture::new(open(&path).unwrap()).unwrap();
            let (mut frame, mut at) = (Vec::new(), 0);
            while let Some(record) = reader.next(&mut frame).unwrap() {
                assert_eq!((record.at, frame.as_slice()), (Time(at), &[7; 100][..]));
                at += 1;
            }
            assert_eq!(at, 1_000);
            let length = std::fs::metadata(&path).unwrap().len();
            std::fs::remove_file(path).unwrap();
            length
        });
        assert!(lengths[1] * 4 < lengths[0], "{lengths:?}");
    }
}
