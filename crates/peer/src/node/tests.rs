//! A member in the sight of a client: what it answers, and what follows.

use sluice_data::BlockKey;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    auth::{GroupKey, admit},
    frame::{Head, Status, sums},
};

const KEY: BlockKey = BlockKey { id: 1, index: 0, size: 40_000 };
const TIMEOUT: Duration = Duration::from_secs(30);

fn ring() -> Arc<KeyRing> {
    Arc::new(KeyRing::new("v", "g", vec![GroupKey::new(1, b"key")]))
}

fn request() -> Request {
    Request { id: 0, kind: Kind::Get, version: 0, key: KEY, range: 0..KEY.size }
}

/// A member that knows the key and says `said` to the first request; then it says nothing.
async fn member(said: impl Fn(u32) -> Vec<u8> + Send + 'static) -> Node {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("it listens");
    let address = listener.local_addr().expect("its address").to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            admit(&mut stream, &ring(), b"").await.expect("it is let in");
            let mut head = [0; Request::BYTES];
            stream.read_exact(&mut head).await.expect("a request");
            let id = Request::decode(&head).expect("a request").id;
            stream.write_all(&said(id)).await.expect("it is said");
            open.push(stream);
        }
    });
    Node::new(address, None, Duration::from_millis(20), Handle::current())
}

fn answer(id: u32, change: impl Fn(&mut Head, &mut Vec<u32>, &mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![7; KEY.size as usize];
    let mut checks = sums(&(0..KEY.size), &bytes);
    let mut head = Head { id, status: Status::Done, sums: 2, length: KEY.size, version: 0 };
    change(&mut head, &mut checks, &mut bytes);
    let checks: Vec<u8> = checks.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    [&head.encode()[..], &checks, &bytes].concat()
}

#[tokio::test]
async fn wrong_answers_are_none_and_the_member_is_left_alone() {
    let right = member(|id| answer(id, |_, _, _| {})).await;
    let got = right.ask(&ring(), request(), None, TIMEOUT).await.expect("a right answer");
    assert_eq!(got.payload, vec![7; KEY.size as usize]);
    let damaged: [fn(u32) -> Vec<u8>; 2] =
        [|id| answer(id, |_, _, bytes| bytes[39_999] ^= 1), |id| answer(id, |_, sums, _| sums[0] ^= 1)];
    for said in damaged {
        let node = member(said).await;
        let got = node.ask(&ring(), request(), None, TIMEOUT).await.expect("an answer");
        assert!(got.damaged && got.status == Status::Failed && got.payload.is_empty());
    }
    let wrong: [fn(u32) -> Vec<u8>; 5] = [
        |id| answer(id, |head, _, bytes| (head.length, *bytes) = (4, vec![7; 4])),
        |id| answer(id, |head, sums, _| (head.sums, *sums) = (0, Vec::new())),
        |id| answer(id, |head, _, _| head.status = Status::Wait),
        |id| answer(id + 1, |_, _, _| {}),
        |_| vec![0xAA; 5000],
    ];
    for (number, said) in wrong.into_iter().enumerate() {
        let node = member(said).await;
        let asked = node.ask(&ring(), request(), None, TIMEOUT).await;
        assert!(matches!(asked, Err(Unanswered::Lost(_))), "{number}: {asked:?}");
        assert!(node.is_suspended(), "{number}");
    }
}

#[tokio::test]
async fn one_that_is_frozen_costs_a_moment_and_is_then_left_alone() {
    let frozen = member(|_| Vec::new()).await;
    let started = Instant::now();
    let ring = ring();
    let asks = (0..3).map(|_| frozen.ask(&ring, request(), None, TIMEOUT));
    for asked in futures::future::join_all(asks).await {
        assert!(matches!(asked, Err(Unanswered::Slow)), "{asked:?}");
    }
    assert!(started.elapsed() < TIMEOUT / 2 && frozen.is_suspended());
    let half = member(|id| answer(id, |_, _, bytes| bytes.truncate(100))).await;
    let asked = half.ask(&ring, request(), None, Duration::from_millis(50)).await;
    assert!(matches!(asked, Err(Unanswered::Slow)), "{asked:?}");
}

#[tokio::test]
async fn an_answer_that_arrives_slowly_counts_before_it_ends() {
    let half = member(|id| answer(id, |_, _, bytes| bytes.truncate(100))).await;
    let (started, fast) = (Instant::now(), Duration::from_millis(1));
    let late = |took| {
        assert!(took >= UNFINISHED && half.is_too_slow(took, KEY.size, fast), "{took:?}");
        while !half.note_cost(took, KEY.size) {}
        half.compare(fast);
    };
    let asked = half.read(&ring(), request(), TIMEOUT, &late).await;
    assert!(matches!(asked, Err(Unanswered::Slow)), "{asked:?}");
    assert!(started.elapsed() < TIMEOUT / 2 && half.is_suspended());
    assert!(!(0..32).any(|_| half.note_cost(TIMEOUT, 0)), "what ends later says nothing new");
}

#[test]
fn answers_flow_if_they_are_as_fast_as_that() {
    let bytes = (2.0 * FLOWING) as u64;
    assert!(do_flow(bytes, 2 * UNKNOWN) && !do_flow(bytes - 1, 2 * UNKNOWN));
}

#[tokio::test]
async fn one_that_is_much_slower_than_others_is_left_alone_until_a_trial() {
    let (ring, fast, slow) = (ring(), Duration::from_millis(1), Duration::from_millis(100));
    let node = Arc::new(member(|id| answer(id, |_, _, _| {})).await);
    node.ask(&ring, request(), None, TIMEOUT).await.expect("an answer");
    let cost = |took| assert_eq!((0..32).filter(|_| node.note_cost(took, 0)).count(), 4);
    cost(slow);
    node.compare(slow);
    assert!(node.is_usable(&ring, || slow), "the others are slow, too");
    cost(fast * 9);
    node.compare(fast);
    assert!(node.is_usable(&ring, || slow), "it is fast enough");
    cost(slow);
    node.compare(fast);
    assert!(node.is_suspended() && !node.is_usable(&ring, || slow));
    let until = Instant::now() + TIMEOUT;
    while !node.is_usable(&ring, || TIMEOUT) {
        assert!(Instant::now() < until, "it is never tried");
        tokio::task::yield_now().await;
    }
    assert_eq!(node.usual_cost(), None, "what it was is forgotten");
}

#[tokio::test]
async fn nobody_there_is_found_out_once() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("it listens");
    let address = listener.local_addr().expect("its address").to_string();
    drop(listener);
    let node = Node::new(address, None, Duration::from_millis(20), Handle::current());
    for _ in 0..100 {
        let asked = node.ask(&ring(), request(), None, TIMEOUT).await;
        assert!(matches!(asked, Err(Unanswered::Lost(_))), "{asked:?}");
        assert!(node.is_suspended());
    }
}
