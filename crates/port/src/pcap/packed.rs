//! Reads files as a stream, plain or compressed by gzip, zstd or lz4, which their first bytes distinguish.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const LZ4: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
const BUFFER_BYTES: usize = 1 << 16;

/// Opens a file and decompresses it if needed.
///
/// # Errors
/// When the system refuses.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    unpacked(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?))
}

/// Reads an input and decompresses it if needed.
///
/// # Errors
/// When it cannot be read, or its beginning is damaged.
pub fn unpacked<'a>(mut input: impl BufRead + Send + 'a) -> io::Result<Box<dyn BufRead + Send + 'a>> {
    let begin = input.fill_buf()?;
    let begins = |magic: &[u8]| begin.starts_with(magic);
    Ok(if begins(&GZIP) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(input)))
    } else if begins(&ZSTD) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, Zstd { input: Some(input), frame: None }))
    } else if begins(&LZ4) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, lz4_flex::frame::FrameDecoder::new(input)))
    } else {
        Box::new(input)
    })
}

/// Skippable frames, which some tools insert: the lowest four bits may have any value.
const SKIPPED: u32 = 0x184D_2A50;

/// The concatenated frames of a zstd stream: tools that compress on several processors write many.
struct Zstd<R: BufRead> {
    input: Option<R>,
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
}

impl<R: BufRead> Zstd<R> {
    /// Starts the next frame; `false` at the end of the input.
    fn begin(&mut self) -> io::Result<bool> {
        let Some(mut input) = self.input.take() else { return Ok(false) };
        while !input.fill_buf()?.is_empty() {
            let begin = input.fill_buf()?.first_chunk().copied().map(u32::from_le_bytes);
            if begin.is_none_or(|begin| begin & !0xF != SKIPPED) {
                let damaged = |error| io::Error::new(ErrorKind::InvalidData, error);
                self.frame = Some(StreamingDecoder::new(input).map_err(damaged)?);
                return Ok(true);
            }
            let mut head = [0; 8];
            input.read_exact(&mut head)?;
            let [.., a, b, c, d] = head;
            io::copy(&mut (&mut input).take(u32::from_le_bytes([a, b, c, d]).into()), &mut io::sink())?;
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.frame.is_some() || self.begin()? {
            let length = self.frame.as_mut().map_or(Ok(0), |frame| frame.read(buffer))?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            self.input = self.frame.take().map(StreamingDecoder::into_inner);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        unpacked(bytes)?.read_to_end(&mut read)?;
        Ok(read)
    }

    fn text() -> Vec<u8> {
        (0..200_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compression_round_trips() {
        let text = text();
        for pack in [gzip, zstd, lz4, |bytes: &[u8]| bytes.to_vec()] {
            assert_eq!(read(&pack(&text)).unwrap(), text);
        }
        let skipped = [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3][..]].concat();
        let several = [zstd(&text[..1_000]), skipped, zstd(&text[1_000..])].concat();
        assert_eq!(read(&several).unwrap(), text);
        assert_eq!(read(&[gzip(&text[..1_000]), gzip(&text[1_000..])].concat()).unwrap(), text);
        assert_eq!(read(&[]).unwrap(), []);
    }

    #[test]
    fn truncated_file_gives_the_frames_before_and_an_error() {
        for pack in [gzip, zstd, lz4] {
            let packed = pack(&text());
            let mut input = unpacked(&packed[..packed.len() / 2]).unwrap();
            let mut read = Vec::new();
            assert!(input.read_to_end(&mut read).is_err());
            assert!(text().starts_with(&read));
        }
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(which in 0_usize..3, at: prop::sample::Index, value: u8, keep: prop::sample::Index) {
            let mut packed = [gzip, zstd, lz4][which](&text()[..3_000]);
            let place = at.index(packed.len());
            packed[place] = value;
            packed.truncate(keep.index(packed.len() + 1));
            let _ = read(&packed);
        }
    }
}
