use std::collections::VecDeque;
use std::io;

use peerlock_registry::disk::{Disk, Write};
use peerlock_types::Rng;

/// After a crash, of an unconfirmed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    Lost,
    Done,
    Torn,
    Holes,
}

#[derive(Clone, Debug, Default)]
pub struct FakeDisk {
    safe: Option<Vec<u8>>,
    under_way: VecDeque<Write>,
    unconfirmed: usize,
}

impl FakeDisk {
    pub fn begin(&mut self, write: Write) {
        self.under_way.push_back(write);
    }

    pub fn finish(&mut self) {
        if let Some(write) = self.under_way.pop_front() {
            self.write(&write).expect("a fake disk has room");
        }
    }

    pub fn crash(&mut self, crash: Crash, rng: &mut Rng) {
        let Some(write) = self.under_way.pop_front() else { return };
        self.under_way.clear();
        let before = self.safe.as_ref().map_or(0, Vec::len);
        match (crash, &write) {
            (Crash::Lost, _) => {}
            (Crash::Done, _) | (_, Write::Remove) => self.write(&write).expect("a fake disk has room"),
            (Crash::Torn | Crash::Holes, Write::Replace(_)) => {}
            (Crash::Torn, Write::Append(bytes)) => {
                let length = rng.below(bytes.len() as u64) as usize;
                self.write(&Write::Append(bytes[..length].to_vec())).expect("a fake disk has room");
            }
            (Crash::Holes, Write::Append(bytes)) => {
                self.write(&Write::Append(bytes.clone())).expect("a fake disk has room");
                if let Some(file) = &mut self.safe {
                    let sectors: Vec<usize> = (before / 512..=(file.len() - 1) / 512).collect();
                    let hole = sectors[rng.below(sectors.len() as u64) as usize];
                    let end = file.len().min((hole + 1) * 512);
                    file[before.max(hole * 512)..end].fill(0);
                }
            }
        }
        if let Write::Append(_) = write {
            self.unconfirmed = self.safe.as_ref().map_or(0, |file| file.len() - before);
        }
    }

    /// Returns whether there was a confirmed bit.
    pub fn flip(&mut self, rng: &mut Rng) -> bool {
        let Some(file) = &mut self.safe else { return false };
        let confirmed = file.len() - self.unconfirmed;
        if confirmed == 0 {
            return false;
        }
        let place = rng.below(confirmed as u64) as usize;
        file[place] ^= 1 << rng.below(8);
        true
    }

    pub fn lose(&mut self) {
        (self.safe, self.unconfirmed) = (None, 0);
        self.under_way.clear();
    }

    pub fn has_file(&self) -> bool {
        self.safe.is_some()
    }
}

impl Disk for FakeDisk {
    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.safe.clone())
    }

    fn write(&mut self, write: &Write) -> io::Result<()> {
        self.unconfirmed = 0;
        match write {
            Write::Append(bytes) => match &mut self.safe {
                Some(file) => file.extend(bytes),
                None => return Err(io::ErrorKind::NotFound.into()),
            },
            Write::Replace(bytes) => self.safe = Some(bytes.clone()),
            Write::Remove => self.safe = None,
        }
        Ok(())
    }
}
