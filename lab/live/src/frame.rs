//! Frames on a stream: a length and that many bytes.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

const LONGEST: usize = 1 << 28;

pub fn write(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut frame = Vec::with_capacity(4 + bytes.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(bytes);
    stream.write_all(&frame)?;
    stream.flush()
}

/// Reads a frame; `None` if the stream ends between two frames.
pub fn read(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

pub fn write_value(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    write(stream, &postcard::to_allocvec(value).map_err(io::Error::other)?)
}

pub fn read_value<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    read(stream)?.map(|bytes| postcard::from_bytes(&bytes).map_err(io::Error::other)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_torn_frames_are_errors() {
        let mut bytes = Vec::new();
        write_value(&mut bytes, &(7u64, "seven".to_string())).unwrap();
        write(&mut bytes, b"").unwrap();
        let mut stream = &bytes[..];
        assert_eq!(read_value(&mut stream).unwrap(), Some((7u64, "seven".to_string())));
        assert_eq!(read(&mut stream).unwrap(), Some(Vec::new()));
        assert_eq!(read(&mut stream).unwrap(), None);
        assert!(read(&mut &bytes[..6]).is_err());
        assert!(read(&mut &[255; 8][..]).is_err(), "a length of 4 GB is an error");
    }
}
