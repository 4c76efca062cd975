//! Measured delays from a file, in one of two formats. Empty lines and lines that begin with `#` are skipped.
//!
//! **A topology of p2psim**, such as `mking-t` of its King data set, if the file begins with `topology` or
//! `failure_model`:
//!
//! ```text
//! topology E2EGraph 1740
//! failure_model NullFailureModel
//!
//! node 1
//! node 2
//! 1,2 89
//! ```
//!
//! Hosts are numbered from 1. A line `i,j t` is the *one-way* delay between two hosts. As in p2psim's own reader
//! (`e2egraph.C`), a negative delay was not measured and a delay of 0 counts as 1. Lines that begin with `node`,
//! `failure_model`, `noise` or `loss_rate` are skipped.
//!
//! **An all-pairs matrix** otherwise, such as `matrix` of the King data set: one line per host, each number a *round
//! trip*. An entry of −1, or of 0 off the diagonal, was not measured.
//!
//! **Units.** If the median round trip is above 10,000 the file is in microseconds (King's median is 160 ms), otherwise
//! in milliseconds. *Basis.* The files were not available: the units are inferred from p2psim's reader and from the
//! published sizes of 19 and 17 MiB, which files with King's statistics have in these units.
//!
//! A missing delay is that of the other direction, or else the median. If there are more hosts than peers, the seed
//! selects them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use peerlock_types::{PeerId, Rng, Span};
use thiserror::Error;

const MICROSECONDS_ABOVE: f64 = 10_000.0;

/// An hour in microseconds.
const LARGEST: f64 = 3.6e9;

/// Their matrix takes 800 MB while it is read.
const MOST_HOSTS: usize = 10_000;

const GAP: f64 = 0.0;

const STREAM: u64 = u64::from_be_bytes(*b"mtxhosts");

#[derive(Debug, Error)]
pub enum MatrixError {
    #[error("cannot read the latency matrix {file}: {reason}")]
    Unreadable { file: PathBuf, reason: io::Error },
    #[error("the latency matrix {file} is wrong in line {line_number}: {what}")]
    Malformed { file: PathBuf, line_number: usize, what: String },
    #[error(
        "the latency matrix {file} has {hosts} hosts, too few for {peers} peers: use fewer peers or a larger matrix"
    )]
    TooSmall { file: PathBuf, hosts: usize, peers: usize },
}

#[derive(Clone, Debug)]
pub struct Matrix {
    peers: usize,
    /// One-way, row by row.
    delays: Arc<[Span]>,
}

impl Matrix {
    #[inline]
    pub(super) fn delay(&self, from: PeerId, to: PeerId) -> Span {
        self.delays[from.index() * self.peers + to.index()]
    }
}

/// In the order of the file.
fn choose(hosts: usize, wanted: usize, rng: &mut Rng) -> Vec<usize> {
    let mut all: Vec<usize> = (0..hosts).collect();
    for i in 0..wanted {
        all.swap(i, i + rng.below((hosts - i) as u64) as usize);
    }
    all.truncate(wanted);
    all.sort_unstable();
    all
}

/// Round trips in the unit of the file, row by row, with gaps.
#[derive(Debug)]
pub struct Table {
    hosts: usize,
    round_trips: Vec<f64>,
}

#[derive(Debug)]
struct Fault {
    line_number: usize,
    what: String,
}

fn fault<T>(line_number: usize, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { line_number, what: what.into() })
}

impl Table {
    pub fn read(file: &Path, peers: usize) -> Result<Self, MatrixError> {
        let text = fs::read_to_string(file).map_err(|reason| MatrixError::Unreadable { file: file.into(), reason })?;
        let table = Self::parse(&text).map_err(|Fault { line_number, what }| MatrixError::Malformed {
            file: file.into(),
            line_number,
            what,
        })?;
        if table.hosts < peers {
            return Err(MatrixError::TooSmall { file: file.into(), hosts: table.hosts, peers });
        }
        Ok(table)
    }

    pub fn draw(&self, peers: usize, seed: u64) -> Matrix {
        let hosts = choose(self.hosts, peers, &mut Rng::stream(seed, STREAM));
        Matrix { peers, delays: self.delays(&hosts) }
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let lines = text.lines().enumerate().map(|(i, row)| (i + 1, row.trim()));
        let mut lines = lines.filter(|(_, row)| !row.is_empty() && !row.starts_with('#')).peekable();
        let table = match lines.peek() {
            None => return fault(1, "the file is empty"),
            Some((_, first)) if matches!(first_word(first), "topology" | "failure_model") => Self::topology(lines)?,
            Some(_) => Self::square(lines)?,
        };
        if table.hosts > 1 && table.round_trips.iter().all(|&x| x == GAP) {
            return fault(1, "no delay between two hosts was measured");
        }
        Ok(table)
    }

    fn square<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, Fault> {
        let (mut hosts, mut rows, mut last) = (0, 0, 0);
        let mut round_trips = Vec::new();
        for (line_number, row) in lines {
            let before = round_trips.len();
            for (column, text) in row.split([' ', '\t', ',']).filter(|text| !text.is_empty()).enumerate() {
                let number = number(line_number, text)?;
                if number < 0.0 && number != -1.0 {
                    return fault(
                        line_number,
                        format!("a round trip cannot be {text}; -1 says that it was not measured"),
                    );
                }
                round_trips.push(if column == rows { GAP } else { number.max(GAP) });
            }
            let found = round_trips.len() - before;
            if rows == 0 {
                hosts = at_most(line_number, found)?;
            }
            if found != hosts {
                return fault(line_number, format!("it has {found} numbers, where the first line has {hosts}"));
            }
            (rows, last) = (rows + 1, line_number);
            if rows > hosts {
                return fault(line_number, format!("there are more than {hosts} lines, the number of columns"));
            }
        }
        if rows < hosts {
            return fault(last, format!("the file ends after {rows} lines, but there are {hosts} columns"));
        }
        Ok(Self { hosts, round_trips })
    }

    fn topology<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, Fault> {
        let passed_over = |row| matches!(first_word(row), "node" | "failure_model" | "noise" | "loss_rate");
        let mut lines = lines.filter(|(_, row)| !passed_over(row));
        let (line_number, header) = lines.next().unwrap_or((1, ""));
        let hosts = match header.split_whitespace().collect::<Vec<_>>()[..] {
            ["topology", "E2EGraph", hosts] => hosts.parse().ok().filter(|&hosts| hosts > 0),
            _ => None,
        };
        let Some(hosts) = hosts else {
            return fault(line_number, "a topology must begin with `topology E2EGraph` and the number of hosts");
        };
        let hosts = at_most(line_number, hosts)?;
        let mut round_trips = vec![GAP; hosts * hosts];
        for (line_number, row) in lines {
            let mut words = row.split_whitespace();
            let pair = words.next().and_then(|pair| pair.split_once(','));
            let (Some((from, to)), Some(delay), None) = (pair, words.next(), words.next()) else {
                return fault(line_number, format!("{row:?} is not of the form `1,2 89`, two hosts and a delay"));
            };
            let (from, to) = (host(line_number, from, hosts)?, host(line_number, to, hosts)?);
            let delay = number(line_number, delay)?;
            if from != to {
                // Negative: not measured. Zero: below the unit; p2psim uses 1.
                round_trips[from * hosts + to] = if delay < 0.0 { GAP } else { 2.0 * delay.max(1.0) };
            }
        }
        Ok(Self { hosts, round_trips })
    }

    fn delays(&self, hosts: &[usize]) -> Arc<[Span]> {
        let mut measured: Vec<f64> = self.round_trips.iter().copied().filter(|&x| x != GAP).collect();
        let middle = measured.len() / 2;
        let median = if measured.is_empty() { GAP } else { *measured.select_nth_unstable_by(middle, f64::total_cmp).1 };
        let half_unit = if median > MICROSECONDS_ABOVE { 0.5e-6 } else { 0.5e-3 };
        let round_trip = |a: usize, b: usize| {
            let both = [self.round_trips[a * self.hosts + b], self.round_trips[b * self.hosts + a]];
            both.into_iter().find(|&x| x != GAP).unwrap_or(if a == b { GAP } else { median })
        };
        let pairs = hosts.iter().flat_map(|&a| hosts.iter().map(move |&b| (a, b)));
        pairs.map(|(a, b)| Span::from_secs_f64(round_trip(a, b) * half_unit)).collect()
    }
}

fn first_word(row: &str) -> &str {
    row.split_whitespace().next().unwrap_or_default()
}

fn at_most(line_number: usize, hosts: usize) -> Result<usize, Fault> {
    if hosts > MOST_HOSTS { fault(line_number, format!("{hosts} hosts are more than {MOST_HOSTS}")) } else { Ok(hosts) }
}

fn number(line_number: usize, text: &str) -> Result<f64, Fault> {
    match text.parse::<f64>() {
        Ok(number) if number.abs() <= LARGEST => Ok(number),
        Ok(number) if !number.is_nan() => fault(line_number, format!("{text} is longer than an hour")),
        _ => fault(line_number, format!("{text:?} is not a number")),
    }
}

/// Parses a host number of p2psim, which counts from 1, into an index.
fn host(line_number: usize, text: &str, hosts: usize) -> Result<usize, Fault> {
    match text.parse::<usize>() {
        Ok(number) if (1..=hosts).contains(&number) => Ok(number - 1),
        _ => fault(line_number, format!("{text:?} is not one of the hosts 1 to {hosts}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tempfile::NamedTempFile;

    use super::*;

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn read(text: &str, peers: usize, seed: u64) -> Result<Matrix, MatrixError> {
        Table::read(file(text).path(), peers).map(|table| table.draw(peers, seed))
    }

    fn micros(matrix: &Matrix) -> Vec<u64> {
        matrix.delays.iter().map(|delay| delay.as_nanos() / 1000).collect()
    }

    #[test]
    fn matrix_files_are_parsed() {
        for (name, text, peers, wanted) in [
            ("one host", "0\n", 1, vec![0]),
            ("blanks", "0 10\n10 0\n", 2, vec![0, 5_000, 5_000, 0]),
            ("tabs, no last line end", "0\t1.5\r\n1.5\t0", 2, vec![0, 750, 750, 0]),
            ("commas and blanks", "0, 10\n10, 0\n", 2, vec![0, 5_000, 5_000, 0]),
            ("remarks and empty lines", "# ms\n\n0 10\n\n10 0\n\n", 2, vec![0, 5_000, 5_000, 0]),
            ("each direction its own", "0 10\n30 0\n", 2, vec![0, 5_000, 15_000, 0]),
            ("the diagonal is not used", "7 10\n10 -1\n", 2, vec![0, 5_000, 5_000, 0]),
            ("a gap takes the other direction", "0 -1\n30 0\n", 2, vec![0, 15_000, 15_000, 0]),
            ("so does 0", "0 30\n0 0\n", 2, vec![0, 15_000, 15_000, 0]),
            (
                "or else the median",
                "0 -1 20\n-1.0 0 8\n30 8 0\n",
                3,
                vec![0, 10_000, 10_000, 10_000, 0, 4_000, 15_000, 4_000, 0],
            ),
            ("milliseconds up to a median of 10,000", "0 10000\n10000 0\n", 2, vec![0, 5_000_000, 5_000_000, 0]),
            ("microseconds above", "0 10001\n160000 0\n", 2, vec![0, 5_000, 80_000, 0]),
            (
                "a topology is one way",
                "topology E2EGraph 2\nfailure_model NullFailureModel\n\nnode 1\nnode 2 x\n1,2 89\n",
                2,
                vec![0, 89_000, 89_000, 0],
            ),
            (
                "a topology with another order of its header",
                "# x\nfailure_model F\ntopology E2EGraph 2\nnoise 0.1\n\n2,1 89\n",
                2,
                vec![0, 89_000, 89_000, 0],
            ),
            ("a topology in microseconds", "topology E2EGraph 2\n1,2 89000\n", 2, vec![0, 89_000, 89_000, 0]),
            (
                "a topology with a gap and a 0",
                "topology E2EGraph 3\n1,2 -1\n1,3 0\n2,3 40\n",
                3,
                vec![0, 40_000, 1_000, 40_000, 0, 40_000, 1_000, 40_000, 0],
            ),
        ] {
            let matrix = read(text, peers, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(micros(&matrix), wanted, "{name}");
        }
    }

    #[test]
    fn malformed_matrix_files_are_refused() {
        for (text, sentence) in [
            ("", "wrong in line 1: the file is empty"),
            ("# nothing\n", "the file is empty"),
            ("0 10\n10\n", "wrong in line 2: it has 1 numbers, where the first line has 2"),
            ("0 10\n10 0 3\n", "line 2: it has 3 numbers"),
            ("0 10 20\n10 0 20\n", "line 2: the file ends after 2 lines, but there are 3 columns"),
            ("0 10\n10 0\n10 0\n", "line 3: there are more than 2 lines"),
            ("a b\n0 1\n", "line 1: \"a\" is not a number"),
            ("0 10\n\nten 0\n", "line 3: \"ten\" is not a number"),
            ("0 NaN\n10 0\n", "line 1: \"NaN\" is not a number"),
            ("0 inf\n10 0\n", "line 1: inf is longer than an hour"),
            ("0 1e99\n10 0\n", "line 1: 1e99 is longer than an hour"),
            ("0 -2\n10 0\n", "line 1: a round trip cannot be -2"),
            ("0 -1\n-1 0\n", "no delay between two hosts was measured"),
            ("topology E2EGraph\n", "line 1: a topology must begin with"),
            ("topology G2Graph 2\n", "line 1: a topology must begin with"),
            ("topology_E2EGraph 2\n", "line 1: \"topology_E2EGraph\" is not a number"),
            ("failure_model F\n", "line 1: a topology must begin with"),
            ("topology E2EGraph 0\n", "line 1: a topology must begin with"),
            ("topology E2EGraph 1000000\n", "line 1: 1000000 hosts are more than 10000"),
            ("topology E2EGraph 2\n1,3 5\n", "line 2: \"3\" is not one of the hosts 1 to 2"),
            ("topology E2EGraph 2\n0,1 5\n", "line 2: \"0\" is not one of the hosts 1 to 2"),
            ("topology E2EGraph 2\n1,2 x\n", "line 2: \"x\" is not a number"),
            ("topology E2EGraph 2\n1 2 5\n", "line 2: \"1 2 5\" is not of the form"),
            ("topology E2EGraph 2\nnode 1\n", "no delay between two hosts was measured"),
            ("0 10\n10 0\n", "has 2 hosts, too few for 3 peers"),
        ] {
            let said = read(text, 3, 1).unwrap_err().to_string();
            assert!(said.contains(sentence), "{text:?}: {said}");
            assert!(!said.contains('\n'), "one sentence: {said}");
        }
    }

    #[test]
    fn unreadable_matrix_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let binary = NamedTempFile::new().unwrap();
        fs::write(binary.path(), [0xff, 0xfe, 0x00]).unwrap();
        for path in [dir.path().join("missing"), dir.path().into(), binary.path().into()] {
            let error = Table::read(&path, 1).unwrap_err();
            assert!(matches!(error, MatrixError::Unreadable { .. }), "{error}");
            assert!(error.to_string().starts_with(&format!("cannot read the latency matrix {}: ", path.display())));
        }
    }

    /// Host i is 1000 + i ms from all before it, so that a delay identifies its host.
    #[test]
    fn seed_selects_hosts_in_file_order() {
        let row = |a: u64| (0..50).map(|b| (1000 + a.max(b)).to_string()).collect::<Vec<_>>().join(" ");
        let text = (0..50).map(row).collect::<Vec<_>>().join("\n");
        let hosts = |seed| -> Vec<u64> {
            let matrix = read(&text, 10, seed).unwrap();
            (1..10).map(|b| matrix.delay(PeerId::new(0), PeerId::new(b)).as_nanos() / 500_000 - 1000).collect()
        };
        assert_eq!(hosts(1), hosts(1));
        assert_ne!(hosts(1), hosts(2));
        assert!(hosts(1).is_sorted() && hosts(2).is_sorted());
        let whole = read(&text, 50, 9).unwrap();
        assert_eq!(whole.delay(PeerId::new(3), PeerId::new(41)), Span::from_nanos(1041 * 500_000));
        assert_eq!(whole.delay(PeerId::new(41), PeerId::new(3)), Span::from_nanos(1041 * 500_000));
    }

    #[test]
    fn hosts_are_selected_uniformly() {
        let mut found = [0u32; 10];
        for seed in 0..2_000 {
            for host in choose(10, 3, &mut Rng::new(seed)) {
                found[host] += 1;
            }
        }
        assert!(found.iter().all(|n| (500..700).contains(n)), "{found:?}");
    }
}
