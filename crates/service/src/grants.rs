//! The takeover file: the grants and waits that the next process of this host continues (`peerlock_node::Predecessor`).
//!
//! ```text
//! {"begin":{"boot":"5c8f… monotonic 0 0 boottime 0 0","host":"123"}}   the clock and the host
//! {"session":{"cluster":"7f…","session":4,"ttl_ms":15000}}
//! {"grant":{"note":"h1…","name":"backup","slot":0,"fencing":4294967297,"since":61500000000,"until":81500000000, …}}
//! {"until":{"note":"h1…","until":84500000000}}                    lease clock, in nanoseconds, like all times
//! {"over":"h1…"}
//! {"waiting":{"name":"backup","client":"process 4711","generation":3,"number":7}}    an arrival number
//! {"waited":{"name":"backup","generation":3,"number":7}}
//! ```
//!
//! The file is beside the socket: in memory if that is in `$XDG_RUNTIME_DIR` or `/run`, else in the data directory. An
//! entry is written before its client is answered. Nothing is synced: the file has to survive the process, not the
//! machine. The last line may be torn if the process was killed; its client was not answered. Other damage makes the
//! whole file void: the predecessor's grants end with its session.
//!
//! Times are valid on one clock only: that of one boot, in time namespaces with one offset (time_namespaces(7)). The
//! file names both. A lease that would last longer than a session was written by another clock: the file is void.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerlock_clock::{Clock, Moment};
use peerlock_node::{ClusterId, GrantRecord, JournalEntry, Name, Place, Predecessor, SessionId, Since, Ttl};
use peerlock_protocol::token::Arrival;
use peerlock_types::{PeerId, Span, Time};
use serde::{Deserialize, Serialize};

/// The file is rewritten after this many bytes were appended.
const MOST_OLD: usize = 256 << 10;

/// The open takeover file.
#[derive(Debug)]
pub struct GrantFile {
    path: PathBuf,
    file: File,
    boot: String,
    host: PeerId,
    now: Ledger,
    /// The bytes appended since it was rewritten.
    old: usize,
}

/// The contents of the file; times are by the machine's clock. Grants are found by ID, since each renewal of the
/// session changes all of their deadlines.
#[derive(Debug, Default)]
struct Ledger {
    session: Option<(ClusterId, SessionId, Ttl)>,
    grants: BTreeMap<String, GrantRecord>,
    /// The clients that wait.
    places: BTreeMap<(Name, Arrival), String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begin {
        boot: String,
        host: String,
    },
    Session {
        cluster: String,
        session: u64,
        ttl_ms: u64,
    },
    Grant {
        note: String,
        name: String,
        slot: u32,
        fencing: u64,
        /// Absent in files of earlier development versions.
        since: Option<i64>,
        until: u64,
        ttl: u64,
        grace: u64,
        #[serde(alias = "kept")]
        auto_renew: bool,
        label: String,
        pid: Option<u32>,
    },
    Until {
        note: String,
        until: u64,
    },
    Over(String),
    Waiting {
        name: String,
        client: String,
        generation: u64,
        number: u64,
    },
    Waited {
        name: String,
        generation: u64,
        number: u64,
    },
}

impl GrantFile {
    /// Opens the file of this host, and rewrites it with the valid part of its contents. The caller holds the lock of
    /// the data directory, so the predecessor has ended.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(path: &Path, host: PeerId) -> io::Result<(Self, Option<Predecessor>)> {
        let boot = boot()?;
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let text = match fs::read(path) {
            // The last line may be torn, also within a character.
            Ok(mut bytes) => {
                bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
                String::from_utf8(bytes).unwrap_or_default()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let in_time = |ledger: &Ledger| ledger.ends_in_time(Moment::now());
        let now = read(&text, &boot, host).filter(in_time).unwrap_or_default();
        let predecessor = now.predecessor(&boot);
        if predecessor.is_none() && !text.is_empty() {
            tracing::warn!(path = %path.display(), "ignored the takeover file, which is not valid here");
        }
        let file = begin(path, &boot, host, &now)?;
        Ok((Self { path: path.to_owned(), file, boot, host, now, old: 0 }, predecessor))
    }

    /// Returns whether a lease of the predecessor's clients is still valid.
    pub fn is_held(predecessor: &Predecessor) -> bool {
        let now = Clock::default().now().nanos();
        predecessor.grants.iter().any(|record| record.until.as_nanos() > now)
    }

    /// Returns the ID of this boot and its clock.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Appends these entries, with times by the machine's clock. Ends the process with an error message if that fails:
    /// a client must not be answered before its entry is written.
    pub(crate) fn record(&mut self, entries: Vec<JournalEntry>) {
        let mut lines = Vec::new();
        for entry in entries {
            put(&mut lines, &Line::of(&entry));
            self.now.enter(entry);
        }
        self.old += lines.len();
        let written = self.file.write_all(&lines).and_then(|()| {
            if self.old > MOST_OLD {
                self.file = begin(&self.path, &self.boot, self.host, &self.now)?;
                self.old = 0;
            }
            Ok(())
        });
        if let Err(error) = written {
            // The log may be on the disk that is full.
            _ = writeln!(
                io::stderr(),
                "peerlock: cannot write {}: {error}. The agent exits, since the next one could not continue its \
                 grants",
                self.path.display()
            );
            std::process::exit(74) // EX_IOERR
        }
    }
}

impl Ledger {
    fn enter(&mut self, entry: JournalEntry) {
        match (entry, self.session) {
            (JournalEntry::Session { cluster, session, ttl }, before) => {
                if before.is_none_or(|(before, ..)| before != cluster) {
                    self.grants.clear();
                    self.places.clear();
                }
                self.session = Some((cluster, session, ttl));
            }
            (_, None) => {}
            (JournalEntry::Grant(record), _) => _ = self.grants.insert(record.note.clone(), *record),
            (JournalEntry::Until { note, until }, _) => {
                if let Some(record) = self.grants.get_mut(&note) {
                    record.until = until;
                }
            }
            (JournalEntry::Over { note }, _) => _ = self.grants.remove(&note),
            (JournalEntry::Waiting(place), _) => _ = self.places.insert((place.name, place.arrival), place.client),
            (JournalEntry::Waited { name, arrival }, _) => _ = self.places.remove(&(name, arrival)),
        }
    }

    fn ends_in_time(&self, now: Moment) -> bool {
        let latest = self.session.map_or(now, |(.., ttl)| now + Duration::from_nanos(ttl.span().as_nanos()));
        self.grants.values().all(|record| record.until.as_nanos() <= latest.nanos())
    }

    fn predecessor(&self, boot: &str) -> Option<Predecessor> {
        let (cluster, session, ttl) = self.session?;
        let (grants, places) = (self.grants.values().cloned().collect(), self.places().collect());
        Some(Predecessor { boot: boot.to_owned(), cluster, session, ttl, grants, places })
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        self.places.iter().map(|((name, arrival), client)| {
            let (name, client, arrival) = (name.clone(), client.clone(), *arrival);
            Place { name, client, arrival }
        })
    }
}

/// Converts the times to a node's clock that starts at `clock_start`. An earlier `since` becomes negative, an earlier
/// deadline zero.
pub(crate) fn translated(mut predecessor: Predecessor, clock_start: Moment) -> Predecessor {
    for record in &mut predecessor.grants {
        record.since = Since::from_nanos(record.since.as_nanos().saturating_sub_unsigned(clock_start.nanos()));
        record.until = Time::from_nanos(record.until.as_nanos().saturating_sub(clock_start.nanos()));
    }
    predecessor
}

pub(crate) fn on_clock(journal_entry: JournalEntry, clock_start: Moment) -> JournalEntry {
    let time = |time: Time| Time::from_nanos(time.as_nanos().saturating_add(clock_start.nanos()));
    match journal_entry {
        JournalEntry::Grant(mut record) => {
            record.since = Since::from_nanos(record.since.as_nanos().saturating_add_unsigned(clock_start.nanos()));
            record.until = time(record.until);
            JournalEntry::Grant(record)
        }
        JournalEntry::Until { note, until } => JournalEntry::Until { note, until: time(until) },
        journal_entry @ (JournalEntry::Session { .. }
        | JournalEntry::Over { .. }
        | JournalEntry::Waiting(_)
        | JournalEntry::Waited { .. }) => journal_entry,
    }
}

fn begin(path: &Path, boot: &str, host: PeerId, now: &Ledger) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let mut lines = Vec::new();
    put(&mut lines, &Line::Begin { boot: boot.to_owned(), host: host.to_string() });
    if let Some((cluster, session, ttl)) = now.session {
        put(&mut lines, &Line::of(&JournalEntry::Session { cluster, session, ttl }));
        now.grants
            .values()
            .for_each(|record| put(&mut lines, &Line::of(&JournalEntry::Grant(Box::new(record.clone())))));
        now.places().for_each(|place| put(&mut lines, &Line::of(&JournalEntry::Waiting(Box::new(place)))));
    }
    file.write_all(&lines)?;
    fs::rename(&new, path)?;
    Ok(file)
}

fn put(lines: &mut Vec<u8>, line: &Line) {
    lines.extend(serde_json::to_vec(line).expect("only maps with keys that are no strings fail"));
    lines.push(b'\n');
}

/// Parses a file. Returns `None` if it is damaged, or of another boot or host.
fn read(text: &str, boot: &str, host: PeerId) -> Option<Ledger> {
    // The rest after the last newline is torn.
    let (whole, _) = text.rsplit_once('\n')?;
    let mut lines = whole.lines().map(|line| serde_json::from_str::<Line>(line).ok());
    let Some(Line::Begin { boot: theirs, host: whose }) = lines.next()? else { return None };
    if theirs != boot || whose != host.to_string() {
        return None;
    }
    lines.try_fold(Ledger::default(), |mut ledger, line| {
        ledger.enter(line?.journal_entry()?);
        Some(ledger)
    })
}

impl Line {
    fn of(journal_entry: &JournalEntry) -> Self {
        match journal_entry.clone() {
            JournalEntry::Session { cluster, session, ttl } => Self::Session {
                cluster: cluster.to_string(),
                session: session.get(),
                ttl_ms: ttl.span().as_nanos() / 1_000_000,
            },
            JournalEntry::Grant(record) => {
                let GrantRecord { note, name, grant, since, until, ttl, grace, auto_renew, label, pid } = *record;
                Self::Grant {
                    note,
                    name: name.to_string(),
                    slot: grant.slot,
                    fencing: grant.fencing,
                    since: Some(since.as_nanos()),
                    until: until.as_nanos(),
                    ttl: ttl.as_nanos(),
                    grace: grace.as_nanos(),
                    auto_renew,
                    label,
                    pid,
                }
            }
            JournalEntry::Until { note, until } => Self::Until { note, until: until.as_nanos() },
            JournalEntry::Over { note } => Self::Over(note),
            JournalEntry::Waiting(place) => {
                let Place { name, client, arrival: Arrival { generation, number } } = *place;
                Self::Waiting { name: name.to_string(), client, generation, number }
            }
            JournalEntry::Waited { name, arrival: Arrival { generation, number } } => {
                Self::Waited { name: name.to_string(), generation, number }
            }
        }
    }

    fn journal_entry(self) -> Option<JournalEntry> {
        Some(match self {
            Self::Begin { .. } => return None,
            Self::Session { cluster, session, ttl_ms } => {
                let cluster = ClusterId::new(u128::from_str_radix(&cluster, 16).ok()?);
                JournalEntry::Session { cluster, session: SessionId::new(session), ttl: Ttl::from_millis(ttl_ms).ok()? }
            }
            Self::Grant { note, name, slot, fencing, since, until, ttl, grace, auto_renew, label, pid } => {
                // If absent: the time of the last renewal, which is not earlier.
                let renewed = || Since::from(Time::from_nanos(until.saturating_sub(ttl)));
                let since = since.map_or_else(renewed, Since::from_nanos);
                let grant = peerlock_protocol::Grant { slot, fencing };
                let (name, until) = (name.parse().ok()?, Time::from_nanos(until));
                let (ttl, grace) = (Span::from_nanos(ttl), Span::from_nanos(grace));
                JournalEntry::Grant(Box::new(GrantRecord {
                    note,
                    name,
                    grant,
                    since,
                    until,
                    ttl,
                    grace,
                    auto_renew,
                    label,
                    pid,
                }))
            }
            Self::Until { note, until } => JournalEntry::Until { note, until: Time::from_nanos(until) },
            Self::Over(note) => JournalEntry::Over { note },
            Self::Waiting { name, client, generation, number } => {
                let (name, arrival) = (name.parse().ok()?, Arrival { generation, number });
                JournalEntry::Waiting(Box::new(Place { name, client, arrival }))
            }
            Self::Waited { name, generation, number } => {
                JournalEntry::Waited { name: name.parse().ok()?, arrival: Arrival { generation, number } }
            }
        })
    }
}

/// Returns the ID of this process's clock: the boot, and the offsets of its time namespace. The namespace's number
/// would not do, since the kernel reuses it.
fn boot() -> io::Result<String> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let unreadable = |error: io::Error| io::Error::new(error.kind(), format!("cannot read {BOOT}: {error}"));
    let id = fs::read_to_string(BOOT).map_err(unreadable)?;
    // Absent if the kernel has no time namespaces.
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    Ok(id.split_whitespace().chain(offsets.split_whitespace()).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    const HOST: PeerId = PeerId::new(7);
    const NAME: &str = "a \"name\"";

    fn session(session: u64) -> JournalEntry {
        let (cluster, ttl) = (ClusterId::new(0xc1), Ttl::from_millis(15_000).unwrap());
        JournalEntry::Session { cluster, session: SessionId::new(session), ttl }
    }

    fn grant(note: &str, until: u64) -> JournalEntry {
        JournalEntry::Grant(Box::new(GrantRecord {
            note: note.into(),
            name: NAME.parse().unwrap(),
            grant: peerlock_protocol::Grant { slot: 1, fencing: 1 << 33 },
            since: Since::from_nanos(5),
            until: Time::from_nanos(until),
            ttl: Span::from_secs(30),
            grace: Span::from_secs(6),
            auto_renew: false,
            label: "ada@host: \\ ü".into(),
            pid: Some(12),
        }))
    }

    fn until(note: &str, until: u64) -> JournalEntry {
        JournalEntry::Until { note: note.into(), until: Time::from_nanos(until) }
    }

    fn waiting(number: u64, client: &str) -> JournalEntry {
        let (name, client, arrival) = (NAME.parse().unwrap(), client.into(), Arrival { generation: 3, number });
        JournalEntry::Waiting(Box::new(Place { name, client, arrival }))
    }

    fn waited(number: u64) -> JournalEntry {
        JournalEntry::Waited { name: NAME.parse().unwrap(), arrival: Arrival { generation: 3, number } }
    }

    fn path() -> PathBuf {
        std::env::temp_dir().join(format!("peerlock-grants-{}-{}", std::process::id(), crate::driver::random()))
    }

    #[test]
    fn next_process_reads_the_file_also_with_a_torn_line() {
        let path = path();
        let (mut file, none) = GrantFile::open(&path, HOST).unwrap();
        assert_eq!(none, None);
        file.record(vec![session(4), grant("one", 10), grant("two", 20)]);
        file.record(vec![until("one", 30)]);
        file.record(vec![JournalEntry::Over { note: "two".into() }, waiting(7, "process 1"), waiting(8, "process 2")]);
        file.record(vec![waited(7)]);
        let whole = fs::read(&path).unwrap();
        let (_, predecessor) = GrantFile::open(&path, HOST).unwrap();
        let predecessor = predecessor.unwrap();
        let expected = [session(4), grant("one", 30), waiting(8, "process 2")];
        let expected = expected
            .into_iter()
            .fold(None, |before, journal_entry| Predecessor::after(before, &predecessor.boot, journal_entry));
        assert_eq!(Some(predecessor.clone()), expected);
        let (_, again) = GrantFile::open(&path, HOST).unwrap();
        assert_eq!(again.as_ref(), Some(&predecessor));
        let mut had_some = false;
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (_, torn) = GrantFile::open(&path, HOST).unwrap();
            assert!(torn.is_some() >= had_some, "{cut}: whole lines count, wherever the last one is torn");
            had_some = torn.is_some();
            let one = torn.as_ref().and_then(|it| it.grants.first()).map(|it| it.until.as_nanos());
            assert!(matches!(one, None | Some(10 | 30)), "{cut}");
            assert!(torn.is_none_or(|it| it.grants.len() <= 2), "{cut}");
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file_of_another_boot_or_host_or_damaged_is_void() {
        let path = path();
        let (mut file, _) = GrantFile::open(&path, HOST).unwrap();
        file.record(vec![session(4), grant("one", 10), waiting(7, "process 1")]);
        let good = fs::read_to_string(&path).unwrap();
        assert!(read(&good, &file.boot, HOST).is_some());
        assert!(read(&good, "another", HOST).is_none());
        assert!(read(&good, &file.boot, PeerId::new(8)).is_none());
        for (from, to) in [
            ("\"until\"", "\"untill\""),
            ("15000", "0"),
            ("{\"begin\"", "{\"began\""),
            ("{\"grant\"", "{\"gift\""),
            ("c1\"", "x\""),
            ("\"waiting\"", "\"waits\""),
            ("\"number\"", "\"place\""),
        ] {
            assert!(good.contains(from), "{from}");
            assert!(read(&good.replace(from, to), &file.boot, HOST).is_none(), "{from}");
        }
        fs::remove_file(&path).unwrap();
    }

    /// Upgrades and downgrades are takeovers, too.
    #[test]
    fn records_of_other_versions_are_read() {
        let line = |journal_entry: &JournalEntry| {
            String::from_utf8(serde_json::to_vec(&Line::of(journal_entry)).unwrap()).unwrap()
        };
        let text = line(&grant("one", 40_000_000_000));
        assert!(text.contains("\"since\":5,"), "{text}");
        for (text, since) in [(text.clone(), 5), (text.replace("\"since\":5,", ""), 10_000_000_000)] {
            let Some(JournalEntry::Grant(record)) = serde_json::from_str::<Line>(&text).unwrap().journal_entry() else {
                panic!("{text}")
            };
            assert_eq!(record.since.as_nanos(), since, "not after its last renewal");
        }
        let more = text.replace("\"since\"", "\"whence\":1,\"since\"");
        assert!(serde_json::from_str::<Line>(&more).is_ok());
    }

    #[test]
    fn holding_time_includes_earlier_processes() {
        let second = 1_000_000_000;
        let predecessor = [session(4), grant("one", 70 * second)];
        let predecessor = predecessor
            .into_iter()
            .fold(None, |before, journal_entry| Predecessor::after(before, "boot", journal_entry))
            .unwrap();
        let clock_start = Moment::from_nanos(100 * second);
        let record = translated(predecessor, clock_start).grants.remove(0);
        let inside = record.since.until(Time::from_nanos(3 * second)).as_nanos();
        assert_eq!(inside, clock_start.nanos() - 5 + 3 * second);
        let JournalEntry::Grant(back) = on_clock(JournalEntry::Grant(Box::new(record)), clock_start) else {
            unreachable!()
        };
        assert_eq!(back.since.as_nanos(), 5);
    }

    #[test]
    fn file_with_an_end_beyond_its_session_is_void() {
        let path = path();
        for (seconds, counts) in [(14, true), (16, false)] {
            let (mut file, _) = GrantFile::open(&path, HOST).unwrap();
            let end = Moment::now() + Duration::from_secs(seconds);
            file.record(vec![session(4), grant("one", 10), grant("two", end.nanos())]);
            let (_, predecessor) = GrantFile::open(&path, HOST).unwrap();
            assert_eq!(predecessor.is_some(), counts, "the session lasts for 15 s, the grant for {seconds} s");
        }
        fs::remove_file(&path).unwrap();
    }

    /// Set in the child process, which runs the same test.
    const ASKED: &str = "PEERLOCK_TEST_GRANT_FILE";

    /// By the clock of another time namespace, a lease would expire too early or never.
    #[test]
    fn file_of_another_time_namespace_is_void() {
        if let Some(path) = std::env::var_os(ASKED) {
            let (_, predecessor) = GrantFile::open(Path::new(&path), HOST).unwrap();
            println!("counts={}", predecessor.is_some());
            return;
        }
        let path = path();
        let (mut file, _) = GrantFile::open(&path, HOST).unwrap();
        file.record(vec![session(4), grant("one", (Moment::now() + Duration::from_secs(10)).nanos())]);
        let written = fs::read(&path).unwrap();
        let counts = |program: &str, arguments: &[&str]| {
            fs::write(&path, &written).unwrap();
            let mut next = std::process::Command::new(program);
            next.args(arguments).env(ASKED, &path);
            match next.output() {
                Ok(output) if output.status.success() => {
                    Ok(String::from_utf8(output.stdout).unwrap().contains("counts=true"))
                }
                failed => Err(failed),
            }
        };
        let this = std::env::current_exe().unwrap().into_os_string().into_string().unwrap();
        let test = ["--exact", "grants::tests::file_of_another_time_namespace_is_void", "--nocapture"];
        assert!(counts(&this, &test).unwrap(), "the next process of the same namespace");
        let unshare = |offset| [&["--time", "--fork", "--boottime", offset, &this][..], &test].concat();
        for (offset, expected) in [("0", true), ("1", false), ("100000", false)] {
            match counts("unshare", &unshare(offset)) {
                Ok(counts) => assert_eq!(counts, expected, "{offset} s ahead"),
                Err(failed) => {
                    let has_namespaces = fs::metadata("/proc/self/ns/time").is_ok();
                    assert!(std::env::var_os("PEERLOCK_CI").is_none() || !has_namespaces, "{failed:?}");
                    eprintln!("skipped: needs root, `unshare` and time namespaces: {failed:?}");
                }
            }
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn random_entries_yield_the_expected_predecessor() {
        let path = path();
        let mut rng = peerlock_types::Rng::new(1);
        let (mut file, _) = GrantFile::open(&path, HOST).unwrap();
        let mut expected: Option<Predecessor> = None;
        let mut most = 0;
        for at in 0..2000 {
            let note = format!("h{}", rng.below(20));
            let is_there =
                expected.iter().flat_map(|predecessor| &predecessor.grants).any(|record| record.note == note);
            let journal_entry = match rng.below(50) {
                0 => session(at),
                1 => {
                    let ttl = Ttl::from_millis(9000).unwrap();
                    JournalEntry::Session { cluster: ClusterId::new(0xc2), session: SessionId::new(at), ttl }
                }
                2..10 if is_there => JournalEntry::Over { note },
                2..20 if !is_there => grant(&note, at),
                20..23 => waiting(at, &note),
                23..26 => waited(rng.below(at + 1)),
                _ => until(&note, at),
            };
            let boot = file.boot().to_owned();
            expected = Predecessor::after(expected, &boot, journal_entry.clone());
            file.record(vec![journal_entry]);
            if rng.below(20) == 0 {
                let found;
                (file, found) = GrantFile::open(&path, HOST).unwrap();
                let by_note = |mut predecessor: Predecessor| {
                    predecessor.grants.sort_by(|one, other| one.note.cmp(&other.note));
                    predecessor
                };
                assert_eq!(found.map(by_note), expected.clone().map(by_note));
            }
            most = most.max(expected.as_ref().map_or(0, |expected| expected.grants.len()));
        }
        assert!(most > 10, "{most}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file_does_not_grow_with_old_entries() {
        let path = path();
        let (mut file, _) = GrantFile::open(&path, HOST).unwrap();
        file.record(vec![session(4), grant("one", 10)]);
        (0..20_000).for_each(|at| file.record(vec![until("one", at)]));
        assert!(fs::metadata(&path).unwrap().len() < 2 * MOST_OLD as u64);
        let (_, predecessor) = GrantFile::open(&path, HOST).unwrap();
        assert_eq!(predecessor.unwrap().grants[0].until.as_nanos(), 19_999);
        fs::remove_file(&path).unwrap();
    }
}
