//! The format of the temporary files: a sequence of pieces. Each piece is a part of the records of
//! one inode.
//!
//! What must stay true: the bytes of a piece begin with its inode and its tag, and names have the
//! last tag. So once the pieces are sorted, those of an inode stand together, its names last.

use std::io::{self, BufRead, ErrorKind, Write};

use sluice_meta::schema::{Row, decode_attr, decode_slices, encode_attr, encode_slices};
use sluice_types::{Ino, Name};

/// Bytes before the content of a piece: inode and tag.
const HEAD: usize = 9;

const ATTR: u8 = 0;
const CHUNK: u8 = 1;
const SYMLINK: u8 = 2;
const XATTR: u8 = 3;
const NAME: u8 = 4;

/// A piece.
pub(super) enum Piece<'p> {
    /// A name of the inode: the directory and the name in it.
    Name(&'p [u8; 8], &'p [u8]),
    /// What belongs to the inode, to be read with [`row`].
    Content(&'p [u8]),
}

/// Replaces `into` with the piece that `row` is; whether it is any.
pub(super) fn encode(row: &Row, into: &mut Vec<u8>) -> bool {
    into.clear();
    let mut begin = |ino: Ino, tag| {
        into.extend(ino.0.to_be_bytes());
        into.push(tag);
    };
    match row {
        Row::Node(ino, attr) => {
            begin(*ino, ATTR);
            into.extend(encode_attr(attr));
        }
        Row::Chunk(ino, index, slices) => {
            begin(*ino, CHUNK);
            into.extend(index.to_be_bytes());
            into.extend(encode_slices(slices));
        }
        Row::Symlink(ino, target) => {
            begin(*ino, SYMLINK);
            into.extend_from_slice(target);
        }
        Row::Xattr(ino, name, value) => {
            begin(*ino, XATTR);
            into.extend((name.len() as u16).to_be_bytes());
            into.extend_from_slice(name);
            into.extend_from_slice(value);
        }
        Row::Entry(dir, name, entry) => {
            begin(entry.ino, NAME);
            into.extend(dir.0.to_be_bytes());
            into.extend_from_slice(name);
        }
        _ => return false,
    }
    true
}

/// The inode of a piece, and the piece.
pub(super) fn split(piece: &[u8]) -> io::Result<(Ino, Piece<'_>)> {
    let (ino, rest) = piece.split_first_chunk::<8>().ok_or_else(damaged)?;
    let piece = match rest {
        [NAME, name @ ..] => {
            let (dir, name) = name.split_first_chunk::<8>().ok_or_else(damaged)?;
            Piece::Name(dir, name)
        }
        _ => Piece::Content(piece),
    };
    Ok((Ino(u64::from_be_bytes(*ino)), piece))
}

/// The record that a piece of content was.
pub(super) fn row(piece: &[u8]) -> io::Result<Row> {
    decoded(piece).ok_or_else(damaged)
}

fn decoded(piece: &[u8]) -> Option<Row> {
    let (head, content) = piece.split_first_chunk::<HEAD>()?;
    let (ino, tag) = head.split_first_chunk::<8>()?;
    let ino = Ino(u64::from_be_bytes(*ino));
    Some(match tag {
        [ATTR] => Row::Node(ino, decode_attr(content)?),
        [CHUNK] => {
            let (index, slices) = content.split_first_chunk()?;
            Row::Chunk(ino, u32::from_be_bytes(*index), decode_slices(slices)?)
        }
        [SYMLINK] => Row::Symlink(ino, content.to_vec().into()),
        [XATTR] => {
            let (length, content) = content.split_first_chunk()?;
            let (name, value) = content.split_at_checked(u16::from_be_bytes(*length).into())?;
            Row::Xattr(ino, Name::stored(name), value.to_vec().into())
        }
        _ => return None,
    })
}

/// Writes bytes behind their length; how many that are in all.
pub(super) fn put(out: &mut impl Write, bytes: &[u8]) -> io::Result<u64> {
    out.write_all(&(bytes.len() as u32).to_be_bytes())?;
    out.write_all(bytes)?;
    Ok(4 + bytes.len() as u64)
}

/// Replaces `into` with the next bytes that [`put`] wrote; whether there are any.
pub(super) fn get(input: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<bool> {
    if input.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    into.resize(u32::from_be_bytes(length) as usize, 0);
    input.read_exact(into)?;
    Ok(true)
}

/// The files of a copy changed under it.
pub(super) fn damaged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the copy of the volume in a temporary file is damaged")
}

#[cfg(test)]
mod tests {
    use sluice_meta::schema::Entry;
    use sluice_types::{Attr, FileType, Slice, Time};

    use super::*;

    fn rows() -> Vec<Row> {
        let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
        let mut attr = Attr::new(FileType::File, 0o644, 7, 8, Ino(3), Time::default());
        (attr.length, attr.access_acl, attr.tier) = (1 << 40, 5, 2);
        vec![
            Row::Node(Ino(9), attr),
            Row::Chunk(Ino(9), 1 << 20, vec![Slice { pos: 1, id: 2, size: 3, off: 0, len: 3 }]),
            Row::Chunk(Ino(9), 0, Vec::new()),
            Row::Symlink(Ino(9), "a/b".into()),
            Row::Xattr(Ino(9), name("user.a"), "".into()),
            Row::Xattr(Ino(9), name("user.b"), vec![0, 255].into()),
        ]
    }

    #[test]
    fn what_a_piece_holds_is_the_record_again() {
        let mut piece = Vec::new();
        for expected in rows() {
            assert!(encode(&expected, &mut piece));
            let (ino, Piece::Content(content)) = split(&piece).expect("a piece") else { panic!("a name") };
            assert_eq!((ino, row(content).expect("whole")), (Ino(9), expected));
        }
        let entry = Row::Entry(Ino(3), Name::stored(b"n"), Entry { kind: FileType::File, ino: Ino(9) });
        assert!(encode(&entry, &mut piece));
        let (ino, Piece::Name(dir, name)) = split(&piece).expect("a piece") else { panic!("no name") };
        assert_eq!((ino, u64::from_be_bytes(*dir), name), (Ino(9), 3, &b"n"[..]));
        assert!(!encode(&Row::SliceRef(1, 2, 3), &mut piece));
    }

    #[test]
    fn bytes_are_read_back_until_there_are_none() {
        let mut file = Vec::new();
        let written: u64 =
            [&b"one"[..], b"", b"three"].iter().map(|it| put(&mut file, it).expect("written")).sum();
        assert_eq!(written, file.len() as u64);
        let (mut input, mut found, mut bytes) = (&file[..], Vec::new(), Vec::new());
        while get(&mut input, &mut bytes).expect("read") {
            found.push(bytes.clone());
        }
        assert_eq!(found, [&b"one"[..], b"", b"three"]);
        get(&mut &file[..5], &mut bytes).expect_err("cut off");
        row(b"too short").expect_err("no piece");
    }
}
