use super::*;
use crate::form::EntryKind;

const HEADER_1: Header = Header { cluster: ClusterId::new(5), voter: VoterId::new(3), file: 9 };

fn entry(index: u64, term: u64, length: usize) -> Entry {
    Entry { index, term, kind: EntryKind::Commands, data: vec![7; length], context: Vec::new() }
}

fn record(entries: &[Entry]) -> Record {
    let hard = entries.last().map(|last| Hard { term: last.term, vote: 1, commit: last.index - 1 });
    Record { snapshot: None, entries: entries.to_vec(), hard }
}

/// Returns a file, and the end of each record.
fn written(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
    let (mut writer, mut bytes) = Writer::begin(HEADER_1, &records[0]);
    let mut ends = vec![bytes.len()];
    for record in &records[1..] {
        bytes.extend(writer.append(record));
        ends.push(bytes.len());
    }
    assert_eq!(writer.length(), bytes.len());
    (bytes, ends)
}

fn three() -> (Vec<u8>, Vec<usize>) {
    written(&[record(&[entry(1, 1, 40)]), record(&[entry(2, 1, 900), entry(3, 1, 10)]), record(&[entry(3, 2, 1500)])])
}

#[test]
fn later_records_supersede_earlier_ones() {
    let (bytes, _) = three();
    let contents = read(&bytes).unwrap();
    assert_eq!((contents.header, contents.torn), (HEADER_1, 0));
    assert_eq!(contents.record.entries, [entry(1, 1, 40), entry(2, 1, 900), entry(3, 2, 1500)]);
    assert_eq!(contents.record.hard, Some(Hard { term: 2, vote: 1, commit: 2 }));
    let snapshot = Snapshot { index: 8, term: 2, state: vec![1] };
    let (bytes, _) = written(&[
        record(&[entry(1, 1, 4)]),
        Record { snapshot: Some(snapshot.clone()), entries: Vec::new(), hard: None },
        record(&[entry(9, 2, 4)]),
    ]);
    let contents = read(&bytes).unwrap();
    assert_eq!((contents.record.snapshot, contents.record.entries), (Some(snapshot), vec![entry(9, 2, 4)]));
}

#[test]
fn truncated_last_record_is_cut_off() {
    let (bytes, ends) = three();
    for length in ends[1] + 1..ends[2] {
        let contents = read(&bytes[..length]).unwrap();
        assert_eq!(contents.record.entries.len(), 3, "{length}");
        assert_eq!(contents.torn, length - ends[1]);
    }
    // The file was synced before it was renamed into place.
    for length in 0..ends[0] {
        assert!(read(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn last_record_with_unwritten_sector_is_cut_off() {
    let (bytes, ends) = three();
    for sector in ends[1] / 512..=(ends[2] - 1) / 512 {
        let (from, to) = ((sector * 512).max(ends[1]), ((sector + 1) * 512).min(ends[2]));
        let mut holed = bytes.clone();
        holed[from..to].fill(0);
        assert!(read(&holed).is_ok_and(|contents| contents.torn == ends[2] - ends[1]), "{from} to {to}");
    }
}

#[test]
fn unwritten_sector_is_detected_at_any_offset() {
    for length in (0..600).chain([1000, 1024]) {
        let (bytes, ends) = written(&[record(&[entry(1, 1, length)]), record(&[entry(2, 1, 600 - length % 600)])]);
        for sector in ends[0] / 512..=(ends[1] - 1) / 512 {
            let mut holed = bytes.clone();
            holed[(sector * 512).max(ends[0])..((sector + 1) * 512).min(ends[1])].fill(0);
            assert!(read(&holed).is_ok_and(|contents| contents.torn == ends[1] - ends[0]), "{length}, sector {sector}");
        }
    }
}

/// The record's length ends in a zero byte, which may be alone in its sector.
#[test]
fn written_zeros_are_not_an_unwritten_sector() {
    let ends_in_zero = |length: &usize| Writer::begin(HEADER_1, &record(&[entry(2, 1, *length)])).1[HEADER] == 0;
    let length = (200..300).find(ends_in_zero).expect("some record is 256 bytes long");
    for before in 0..600 {
        let (mut bytes, ends) = written(&[record(&[entry(1, 1, before)]), record(&[entry(2, 1, length)])]);
        bytes[ends[0] + 100] ^= 1;
        assert!(matches!(read(&bytes), Err(Damage::Record { number: 2, .. })), "{before}");
    }
}

#[test]
fn flipped_bit_in_a_confirmed_record_is_damage() {
    let (bytes, ends) = three();
    for place in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[place / 8] ^= 1 << (place % 8);
        let Err(damage) = read(&flipped) else { panic!("bit {place}") };
        if let Damage::Record { number, at, .. } = damage {
            let expected = ends.iter().position(|end| place / 8 < *end).unwrap();
            assert_eq!(
                (number, ends.get(expected.wrapping_sub(1)).copied().unwrap_or(HEADER)),
                (expected as u64 + 1, at)
            );
        } else {
            assert!(place / 8 < HEADER, "bit {place}: {damage}");
        }
    }
}

#[test]
fn unwritten_sector_before_the_end_is_damage() {
    let (bytes, ends) = three();
    for (from, to) in [(ends[0], ends[1]), (ends[0], ends[0] + 30), (ends[1] - 16, ends[1]), (HEADER, ends[0])] {
        let mut holed = bytes.clone();
        holed[from..to].fill(0);
        assert!(matches!(read(&holed), Err(Damage::Record { .. })), "{from} to {to}");
    }
    // A record of another file of the same voter.
    let (mut other, more) = Writer::begin(Header { file: 8, ..HEADER_1 }, &record(&[entry(1, 1, 40)]));
    assert_eq!(more.len(), ends[0]);
    let mut mixed = bytes[..ends[0]].to_vec();
    mixed.extend(other.append(&record(&[entry(2, 1, 10)])));
    assert!(matches!(read(&mixed), Err(Damage::Record { number: 2, .. })));
}

#[test]
fn damage_names_record_and_remedy() {
    let (mut bytes, ends) = three();
    bytes[ends[0] + 100] ^= 4;
    let sentence = read(&bytes).unwrap_err().to_string();
    assert!(sentence.starts_with(&format!("record 2 at byte {}", ends[0])), "{sentence}");
    assert!(sentence.contains("Move the file away"), "{sentence}");
    bytes[0] = b'x';
    let sentence = read(&bytes).unwrap_err().to_string();
    assert!(sentence.contains("not a usable registry file") && sentence.contains("Move the file away"), "{sentence}");
    let (mut newer, _) = three();
    newer[8] = 2;
    let sum = sum(&[&newer[..HEADER - SUM]]);
    newer[HEADER - SUM..HEADER].copy_from_slice(&sum);
    assert_eq!(read(&newer), Err(Damage::Format(2)));
}

#[test]
fn merge_retains_the_newest() {
    let mut first = record(&[entry(4, 1, 1), entry(5, 1, 1)]);
    first.merge(record(&[entry(5, 2, 1)]));
    assert_eq!(first.entries, [entry(4, 1, 1), entry(5, 2, 1)]);
    let snapshot = Snapshot { index: 9, term: 2, state: Vec::new() };
    first.merge(Record { snapshot: Some(snapshot), entries: vec![entry(10, 2, 1)], hard: None });
    assert_eq!((first.entries.len(), first.hard.map(|hard| hard.term)), (1, Some(2)));
}
