//! Measures how much time `fs` adds to the call of `vfs`.

use std::time::Instant;

use sluice_fs::User;
use sluice_vfs::Interrupt;

use crate::rig::{Rig, put};

/// Prints the time of a read of 4 KiB from the memory cache, and of the same read below. Run it by
/// name, from a build with optimizations: `cargo test --release … -- --ignored cost`.
#[test]
#[ignore = "measures, and judges nothing"]
fn cost_of_a_small_read() {
    const READS: u32 = 200_000;
    let rig = Rig::sqlite();
    let fs = rig.volume.fs(&User::root());
    put(&fs, "/f", &vec![1; 16 << 20]);
    let file = fs.open("/f").unwrap();
    assert_eq!(file.read_pieces(0, 16 << 20).unwrap().concat().len(), 16 << 20);
    let opened = rig.volume.vfs();
    let below =
        opened.open(&sluice_types::Caller::user(0, 0), &Interrupt::never(), file.ino(), libc::O_RDONLY);
    let below = below.unwrap().fh;
    let mut buffer = vec![0; 4096];
    let offset = |number: u32| u64::from(number.wrapping_mul(2_654_435_761) % 4096) * 4096;
    for _ in 0..3 {
        let begin = Instant::now();
        for number in 0..READS {
            assert_eq!(file.read_at(&mut buffer, offset(number)).unwrap(), 4096);
        }
        let ours = begin.elapsed() / READS;
        let begin = Instant::now();
        for number in 0..READS {
            let pieces = opened.read(&Interrupt::never(), below, offset(number), 4096).unwrap();
            assert_eq!(pieces.iter().map(bytes::Bytes::len).sum::<usize>(), 4096);
        }
        let theirs = begin.elapsed() / READS;
        println!("read_at {ours:?}, below {theirs:?}, above it {:?}", ours.saturating_sub(theirs));
    }
    opened.release(below, None).unwrap();
}
