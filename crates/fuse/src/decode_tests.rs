//! Tests of decoding, with valid and with malformed requests.
//!
//! What must stay true: each operation is also tested with request bodies that no kernel sends.

use zerocopy::IntoBytes;

use super::*;

/// A whole request from its parts.
fn request(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
    let body: Vec<u8> = parts.concat();
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header =
        InHeader { len, opcode, unique: 2, nodeid: 7, uid: 1, gid: 2, pid: 3, ..InHeader::default() };
    [header.as_bytes(), &body].concat()
}

#[track_caller]
fn decoded(bytes: &[u8], ext: bool, check: impl FnOnce(Operation<'_>)) {
    check(Message::parse(bytes).expect("header").operation(ext).expect("body"));
}

#[test]
fn names_end_at_nul() {
    decoded(&request(opcode::LOOKUP, &[b"file\0"]), true, |op| {
        assert!(matches!(op, Operation::Lookup { name } if name == "file"));
    });
    let target = abi::Rename2In { newdir: 9, flags: libc::RENAME_EXCHANGE, padding: 0 };
    decoded(&request(opcode::RENAME2, &[target.as_bytes(), b"old\0new\0"]), true, |op| {
        let Operation::Rename(rename) = op else { panic!("{op:?}") };
        assert_eq!((rename.name, rename.new_name), (OsStr::new("old"), OsStr::new("new")));
        assert_eq!((rename.new_parent, rename.flags), (9, libc::RENAME_EXCHANGE));
    });
}

#[test]
fn write_borrows_exactly_its_data() {
    let head = abi::WriteIn { fh: 4, offset: 10, size: 3, ..abi::WriteIn::default() };
    decoded(&request(opcode::WRITE, &[head.as_bytes(), b"abc"]), true, |op| {
        assert!(matches!(
            op,
            Operation::Write(Write { fh: 4, offset: 10, data: b"abc", lock_owner: None, .. })
        ));
    });
    let short = request(opcode::WRITE, &[head.as_bytes(), b"ab"]);
    let error = Message::parse(&short).expect("header").operation(true).expect_err("cut short");
    assert_eq!(error, Malformed { opcode: opcode::WRITE, what: "data cut short" });
}

#[test]
fn setxattr_has_two_shapes() {
    let head = abi::SetxattrIn { size: 2, flags: libc::XATTR_CREATE as u32 };
    let ext = abi::SetxattrExt::default();
    decoded(&request(opcode::SETXATTR, &[head.as_bytes(), b"user.a\0vv"]), false, |op| {
        let Operation::Setxattr(x) = op else { panic!("{op:?}") };
        assert_eq!((x.name, x.value, x.kill_sgid), (OsStr::new("user.a"), &b"vv"[..], true), "nobody says");
    });
    decoded(&request(opcode::SETXATTR, &[head.as_bytes(), ext.as_bytes(), b"user.a\0vv"]), true, |op| {
        let Operation::Setxattr(x) = op else { panic!("{op:?}") };
        assert_eq!((x.name, x.value, x.kill_sgid), (OsStr::new("user.a"), &b"vv"[..], false));
    });
}

#[test]
fn locks_of_both_kinds_are_told_apart() {
    for (lk_flags, flock) in [(0, false), (bits::LK_FLOCK, true)] {
        let lk = abi::FileLock { start: 1, end: 2, kind: libc::F_WRLCK as u32, pid: 5 };
        let head = abi::LkIn { fh: 1, owner: 6, lk, lk_flags, padding: 0 };
        decoded(&request(opcode::SETLKW, &[head.as_bytes()]), true, |op| {
            let Operation::Setlkw(args) = op else { panic!("{op:?}") };
            assert_eq!((args.owner, args.flock, args.lock.kind), (6, flock, LockKind::Write));
        });
    }
    let head =
        abi::LkIn { lk: abi::FileLock { kind: 9, ..abi::FileLock::default() }, ..abi::LkIn::default() };
    let bytes = request(opcode::SETLK, &[head.as_bytes()]);
    assert!(Message::parse(&bytes).expect("header").operation(true).is_err());
}

#[test]
fn setattr_takes_what_is_marked() {
    let raw = abi::SetattrIn {
        valid: fattr::SIZE | fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME,
        size: 5,
        mode: 0o777,
        mtime: -3_i64 as u64,
        mtimensec: 9,
        ..abi::SetattrIn::default()
    };
    decoded(&request(opcode::SETATTR, &[raw.as_bytes()]), true, |op| {
        let Operation::Setattr(set) = op else { panic!("{op:?}") };
        let mtime = Some(SetTime::At(Timestamp { secs: -3, nanos: 9 }));
        assert_eq!(set, SetAttr { size: Some(5), atime: Some(SetTime::Now), mtime, ..SetAttr::default() });
    });
}

#[test]
fn forgets_come_in_batches() {
    let head = abi::BatchForgetIn { count: 2, dummy: 0 };
    let ones = [abi::ForgetOne { nodeid: 4, nlookup: 1 }, abi::ForgetOne { nodeid: 5, nlookup: 2 }];
    decoded(&request(opcode::BATCH_FORGET, &[head.as_bytes(), ones.as_bytes()]), true, |op| {
        let Operation::BatchForget(forgets) = op else { panic!("{op:?}") };
        assert_eq!(forgets.collect::<Vec<_>>(), [(4, 1), (5, 2)]);
    });
    let lie = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    let bytes = request(opcode::BATCH_FORGET, &[lie.as_bytes(), ones.as_bytes()]);
    assert!(Message::parse(&bytes).expect("header").operation(true).is_err());
}

#[test]
fn extensions_are_cut_off() {
    let mut bytes = request(opcode::LOOKUP, &[b"f\0", &[1; 8]]);
    bytes[36] = 1;
    decoded(&bytes, true, |op| assert!(matches!(op, Operation::Lookup { name } if name == "f")));
    bytes[36] = 200;
    assert!(Message::parse(&bytes).is_err());
}

#[test]
fn headers_that_lie_are_refused() {
    let bytes = request(opcode::GETATTR, &[&[0; 16]]);
    for end in 0..bytes.len() {
        assert!(Message::parse(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(Message::parse(&[&bytes[..], &[0]].concat()).is_err());
}

/// Every operation with a body of every length, all of zeros, all of ones, and at random.
#[test]
fn nothing_panics() {
    const SEED: u64 = 0x5EED_F05E;
    let mut state = SEED;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut understood = 0;
    for opcode in 0..64 {
        for length in 0..160 {
            for round in 0..20 {
                let body: Vec<u8> = match round {
                    0 => vec![0; length],
                    1 => vec![0xFF; length],
                    2..10 => (0..length).map(|_| random() as u8).collect(),
                    // Small numbers are more likely to pass for sizes.
                    _ => {
                        (0..length).map(|_| if random() % 4 == 0 { random() as u8 % 48 } else { 0 }).collect()
                    }
                };
                let bytes = request(opcode, &[&body]);
                for ext in [false, true] {
                    let outcome = std::panic::catch_unwind(|| {
                        let message = Message::parse(&bytes).expect("header");
                        let _ = message.init();
                        match message.operation(ext) {
                            Ok(Operation::BatchForget(forgets)) => forgets.count() < 20,
                            Ok(Operation::Write(write)) => write.data.len() <= length,
                            other => other.is_ok(),
                        }
                    });
                    let fine = outcome.unwrap_or_else(|_| panic!("seed {SEED:#x}: {opcode} {body:?}"));
                    understood += usize::from(fine);
                }
            }
        }
    }
    assert!(understood > 10_000, "only {understood} were understood: the bodies test nothing");
}
