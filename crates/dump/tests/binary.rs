//! Binary dumps that JuiceFS 1.4.1 wrote, read and written again.

use sluice_dump::{
    DumpError,
    binary::{Reader, Writer},
};
use sluice_meta::schema::{Counter, Key, Row};
use sluice_types::Ino;

const TREE: &[u8] = include_bytes!("fixtures/tree.binary");
const DELETED: &[u8] = include_bytes!("fixtures/deleted.binary");

fn read(dump: &[u8]) -> Result<Vec<Row>, DumpError> {
    let mut reader = Reader::new(dump);
    let mut rows = Vec::new();
    while let Some(segment) = reader.segment()? {
        rows.extend(segment);
    }
    assert_eq!(reader.position(), dump.len() as u64);
    Ok(rows)
}

fn write(rows: &[Row]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for row in rows {
        writer.write(row.clone()).expect("written");
    }
    writer.finish().expect("written")
}

#[test]
fn what_juicefs_wrote_is_read() {
    let rows = read(TREE).expect("read");
    let count = |wanted: fn(&Key) -> bool| rows.iter().filter(|row| wanted(&row.key())).count();
    // The numbers of the footer that JuiceFS wrote.
    assert_eq!(count(|key| matches!(key, Key::Node(_))), 52);
    assert_eq!(count(|key| matches!(key, Key::Entry(..))), 52);
    assert_eq!(count(|key| matches!(key, Key::Chunk(..))), 34);
    assert_eq!(count(|key| matches!(key, Key::Quota(_))), 5);
    assert_eq!(count(|key| matches!(key, Key::Acl(_))), 3);
    assert!(rows.iter().any(|row| matches!(row, Row::Counter(Counter::TotalInodes, 50))));
    assert!(rows.iter().any(|row| matches!(row, Row::Node(Ino(1), attr) if attr.mode == 0o777)));
    let files = read(DELETED).expect("read");
    assert_eq!(files.iter().filter(|row| matches!(row, Row::DelFile(..))).count(), 296);
    assert!(files.iter().any(|row| matches!(row, Row::Sustained(..))));
}

#[test]
fn what_is_written_is_read_again() {
    for dump in [TREE, DELETED] {
        let rows = read(dump).expect("read");
        assert_eq!(read(&write(&rows)).expect("read"), rows);
    }
}

#[test]
fn a_dump_that_is_cut_off_is_refused_wherever_it_ends() {
    for end in 0..TREE.len() {
        assert!(read(&TREE[..end]).is_err(), "cut off after {end} bytes");
    }
}

#[test]
fn damage_is_an_error_or_another_value_but_no_panic() {
    for at in 0..TREE.len() {
        for bit in [0x01, 0x80] {
            let mut dump = TREE.to_vec();
            dump[at] ^= bit;
            let _ = read(&dump);
        }
    }
}

#[test]
fn other_files_are_named_as_such() {
    let message = |dump: &[u8]| read(dump).expect_err("refused").to_string();
    assert!(message(b"{\"Setting\": {}}, and so on").contains("no binary dump"));
    let mut newer = write(&[]);
    // The footer's version follows its magic number.
    let at = newer.len() - 9;
    newer[at] = 2;
    assert!(message(&newer).contains("version 2"));
}
