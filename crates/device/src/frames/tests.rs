use super::*;

#[test]
fn quotas_are_apart_and_frames_come_back() {
    let pool = FramePool::new(8, 4, 2).unwrap();
    assert_eq!(
        (pool.capacity(Quota::Write), pool.capacity(Quota::Read)),
        (8, 4)
    );
    let mut frames = pool.take(Quota::Write, 8).unwrap();
    assert!(pool.try_take(Quota::Write, 1).is_none());
    assert_eq!(pool.take(Quota::Read, 4).unwrap().len(), 4);
    assert_eq!(
        frames.runs().map(|(_, len)| len).sum::<usize>(),
        8 * BLOCK_BYTES
    );
    frames.block_mut(7).fill(7);
    assert!(frames.block(7).iter().all(|&b| b == 7));
    let ids = frames.into_bufs();
    assert_eq!(pool.available(Quota::Write), 0);
    pool.give_back(ids);
    assert_eq!(
        (pool.available(Quota::Write), pool.available(Quota::Read)),
        (8, 4)
    );
}

#[test]
fn a_written_block_is_known_until_its_frame_is_needed() {
    let pool = FramePool::new(8, 1, 1).unwrap();
    let mut frames = pool.take(Quota::Write, 4).unwrap();
    for index in 0..4 {
        frames.block_mut(index).fill(index as u8);
    }
    let block = |fill: u8| [fill; BLOCK_BYTES];
    // One of them is not of the quota: the collector's.
    let bufs: Vec<_> = frames.bufs().chain([Buf(9)]).collect();
    let places = (100..).map(|at| (Pba(at), None));
    pool.remember(
        bufs.into_iter()
            .zip(places)
            .map(|(buf, (at, slot))| (buf, at, slot)),
    );
    let known = |at, fill| pool.is_same(Pba(at), None, &block(fill));
    assert_eq!(known(100, 0), Some(true), "still held");
    drop(frames);
    assert_eq!(pool.available(Quota::Write), 8);
    assert_eq!((known(101, 1), known(102, 1)), (Some(true), Some(false)));
    assert_eq!((known(104, 0), known(105, 0)), (None, None));
    pool.forget(Pba(102), 2);
    assert_eq!((known(102, 2), known(103, 3)), (None, None));
    assert_eq!(pool.available(Quota::Write), 8);
    // Empty ones first.
    let others = pool.take(Quota::Write, 6).unwrap();
    assert_eq!((known(100, 0), known(101, 1)), (Some(true), Some(true)));
    assert_eq!(pool.available(Quota::Write), 2);
    let last = pool.try_take(Quota::Write, 2).unwrap();
    assert_eq!((known(100, 0), known(101, 1)), (None, None));
    drop((others, last));
    assert_eq!(pool.available(Quota::Write), 8);
}

#[test]
#[should_panic(expected = "frame 0 of 0")]
fn no_frames_have_no_bytes() {
    let _ = Frames::default().block(0);
}

/// A chunk has frames of clients and of snapshots, in any order.
#[test]
fn frames_of_two_quotas_are_given_back_by_two_threads() {
    let pool = FramePool::new(8, 4, 0).unwrap();
    let (ended, ends) = std::sync::mpsc::channel();
    for is_reversed in [false, true] {
        let (pool, ended) = (Arc::clone(&pool), ended.clone());
        std::thread::spawn(move || {
            for _ in 0..20_000 {
                let both = [Quota::Write, Quota::Own].map(|quota| pool.take(quota, 1).unwrap());
                let mut ids: Vec<u32> = both.into_iter().flat_map(Frames::into_bufs).collect();
                if is_reversed {
                    ids.reverse();
                }
                pool.give_back(ids);
            }
            ended.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        let ends = ends.recv_timeout(std::time::Duration::from_secs(60));
        assert!(ends.is_ok(), "each waits for the other's lock");
    }
}

#[test]
fn the_next_volume_does_not_inherit_a_refusal() {
    let pool = FramePool::new(8, 4, 0).unwrap();
    for quota in [Quota::Write, Quota::Own] {
        pool.await_next(true);
        pool.refuse_writes(Some(BlockError::Stopping));
        pool.await_next(false);
        let all = pool.take(quota, pool.capacity(quota)).unwrap();
        let other = Arc::clone(&pool);
        let waiter = std::thread::spawn(move || other.take(quota, 1).map(|frames| frames.len()));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(all);
        assert_eq!(waiter.join().unwrap().unwrap(), 1, "{quota:?}");
    }
}

#[test]
fn a_taker_waits_until_there_are_enough() {
    let pool = FramePool::new(4, 4, 0).unwrap();
    let first = pool.take(Quota::Read, 3).unwrap();
    let other = Arc::clone(&pool);
    let waiter = std::thread::spawn(move || other.take(Quota::Read, 2).unwrap().len());
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(first);
    assert_eq!(waiter.join().unwrap(), 2);
}

#[test]
fn waiters_are_served_in_order_of_arrival() {
    let pool = FramePool::new(4, 4, 0).unwrap();
    let mut held = vec![pool.take(Quota::Write, 1).unwrap()];
    held.push(pool.take(Quota::Write, 2).unwrap());
    let (taken, order) = std::sync::mpsc::channel();
    let takers: Vec<_> = [4, 1]
        .into_iter()
        .enumerate()
        .map(|(before, count)| {
            let (theirs, taken) = (Arc::clone(&pool), taken.clone());
            let taker = std::thread::spawn(move || {
                let frames = theirs.take(Quota::Write, count).unwrap();
                taken.send(frames.len()).unwrap();
            });
            while pool.free[Quota::Write as usize].lock().waiting.len() <= before {
                std::thread::yield_now();
            }
            taker
        })
        .collect();
    // One is free, but not for those further back.
    assert!(order.try_recv().is_err());
    assert!(pool.try_take(Quota::Write, 1).is_none());
    held.clear();
    assert_eq!((order.recv().unwrap(), order.recv().unwrap()), (4, 1));
    takers.into_iter().for_each(|taker| taker.join().unwrap());
    assert_eq!(pool.available(Quota::Write), 4);
}

#[test]
fn a_waiter_is_told_why_no_writes_are_taken() {
    let pool = FramePool::new(4, 4, 0).unwrap();
    let held = pool.take(Quota::Write, 3).unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || pool.take(Quota::Write, 2).map(drop))
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(20));
    pool.refuse_writes(Some(BlockError::Full));
    for waiter in waiters {
        assert!(matches!(waiter.join().unwrap(), Err(BlockError::Full)));
    }
    assert!(pool.take(Quota::Write, 2).is_err() && pool.refused.load(Relaxed) == 4);
    // What is free is still handed out: a write may get its answer from the volume itself.
    assert_eq!(pool.take(Quota::Write, 1).unwrap().len(), 1);
    assert_eq!(pool.take(Quota::Read, 4).unwrap().len(), 4);
    pool.refuse_writes(None);
    let other = Arc::clone(&pool);
    let waiter = std::thread::spawn(move || other.take(Quota::Write, 4).map(drop));
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(held);
    waiter.join().unwrap().unwrap();
}

/// A volume that stops waits for its own threads, and one of them may wait for frames that it will not get.
#[test]
fn a_thread_of_the_volume_that_stops_is_refused_though_another_follows() {
    let pool = FramePool::new(4, 4, 0).unwrap();
    let held = pool.take(Quota::Own, pool.capacity(Quota::Own)).unwrap();
    pool.await_next(true);
    let other = Arc::clone(&pool);
    let waiter = std::thread::spawn(move || other.take(Quota::Own, 1).map(drop));
    pool.refuse_writes(Some(BlockError::Stopping));
    assert!(matches!(waiter.join().unwrap(), Err(BlockError::Stopping)));
    drop(held);
    pool.await_next(false);
    assert_eq!(pool.take(Quota::Own, 1).unwrap().len(), 1);
}
