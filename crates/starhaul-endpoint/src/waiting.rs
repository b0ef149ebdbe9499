//! Tasks that wait on halves of byte streams, and when they are woken.

use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use starhaul_session::SparePage;

/// Where the task of one half of a byte stream waits. The half asks here before it asks for the lock of the state: tasks are polled for other
/// reasons, too, and the driver may have that lock for long.
///
/// That all is used up is noted under the lock of the state, under which the driver, too, hears of news: so one comes after the other, and
/// the session tells again once it has said that there is nothing. When the task comes to wait does not matter: it is either woken, or goes on.
#[derive(Debug, Default)]
pub(crate) struct Waiter(Mutex<Wait>);

#[derive(Debug, Default)]
struct Wait {
    /// The half has used up all bytes, or all room, and nothing has come since.
    is_used_up: bool,
    /// The task that waits; only while all is used up.
    waker: Option<Waker>,
    /// Memory that the half has read, until the session takes it: by the next read that asks for the lock of the state.
    spare: Vec<SparePage>,
}

impl Waiter {
    /// The half has used up what there was. The caller has the lock of the state, and has learnt from the session that it will tell of more.
    pub(crate) fn use_up(&self) {
        self.0.lock().is_used_up = true;
    }

    /// The same where there was nothing: the task of this context waits.
    pub(crate) fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        self.use_up();
        self.waits(context);
        Poll::Pending
    }

    /// Whether all is used up, and nothing has come: then the task of this context waits. Takes no other lock.
    pub(crate) fn waits(&self, context: &Context<'_>) -> bool {
        let mut wait = self.0.lock();
        if !wait.is_used_up {
            return false;
        }
        let is_same = |waker: &Waker| waker.will_wake(context.waker());
        if !wait.waker.as_ref().is_some_and(is_same) {
            let other = wait.waker.replace(context.waker().clone());
            drop(wait);
            // It may drop a task, and with it halves of streams, which need the lock of the state.
            drop(other);
        }
        true
    }

    /// Something has come: the half may go on, and the task, if one waits, is to be woken once the lock of the state is free.
    pub(crate) fn take(&self) -> Option<Waker> {
        let wait = &mut *self.0.lock();
        wait.is_used_up = false;
        wait.waker.take()
    }

    /// The half has copied what was in these pages; `spare` loses them. Takes no other lock.
    pub(crate) fn put_spare(&self, spare: &mut Vec<SparePage>) {
        if !spare.is_empty() {
            self.0.lock().spare.append(spare);
        }
    }

    /// Adds the pages that wait here to `spare`.
    pub(crate) fn take_spare(&self, spare: &mut Vec<SparePage>) {
        spare.append(&mut self.0.lock().spare);
    }

    /// Bytes of the pages that wait here.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.0.lock().spare.len() * SparePage::BYTES
    }

    /// Frees the pages that wait here.
    pub(crate) fn release_memory(&self) {
        let spare = std::mem::take(&mut self.0.lock().spare);
        drop(spare);
    }
}

/// Tasks that are to be woken once the lock of the state is free.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    now: Vec<Waker>,
    readers: Vec<Waker>,
}

impl Woken {
    /// A task that is woken after the present round of the driver.
    pub(crate) fn add(&mut self, task: Option<Waker>) {
        self.now.extend(task);
    }

    /// A task that has something to read. It is woken when all that was received together is taken in: until then the driver has the lock
    /// most of the time, and a reader would wait for it again and again, for a part of what comes.
    pub(crate) fn add_reader(&mut self, task: Option<Waker>) {
        self.readers.extend(task);
    }

    /// The tasks to wake now; without readers if `more_follow` of what was received together.
    pub(crate) fn take(&mut self, more_follow: bool) -> Vec<Waker> {
        let mut woken = std::mem::take(&mut self.now);
        if !more_follow {
            woken.append(&mut self.readers);
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        task::Wake,
        thread::{self, Thread},
        time::{Duration, Instant},
    };

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (count.clone(), count.into())
    }

    fn times(count: &Count) -> usize {
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn whoever_came_to_wait_last_is_woken_once_and_news_before_the_wait_let_it_go_on() {
        let waiter = Waiter::default();
        let ((first, first_waker), (second, second_waker)) = (counted(), counted());
        let [one, other] = [&first_waker, &second_waker].map(Context::from_waker);
        assert!(!waiter.waits(&one), "nobody knows that nothing is left");
        assert!(waiter.wait::<()>(&one).is_pending());
        assert!(waiter.waits(&other) && waiter.waits(&other));
        waiter.take().unwrap().wake();
        assert_eq!((times(&first), times(&second)), (0, 1));
        assert!(waiter.take().is_none() && !waiter.waits(&one));
        // What comes before the task does is no reason to wait, nor one to wake.
        waiter.use_up();
        assert!(waiter.take().is_none());
        assert!(!waiter.waits(&one));
        waiter.use_up();
        assert!(waiter.waits(&one));
        waiter.take().unwrap().wake();
        assert_eq!((times(&first), times(&second)), (1, 1));
    }

    /// A task that, when it is dropped, tells whether the half on which it waited may be used.
    struct Dropped {
        waiter: Arc<Waiter>,
        was_free: Arc<AtomicBool>,
    }

    impl Wake for Dropped {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Dropped {
        fn drop(&mut self) {
            let is_free = self.waiter.0.try_lock().is_some();
            self.was_free.store(is_free, Ordering::Relaxed);
        }
    }

    /// A task owns halves of streams, and drops them with itself.
    #[test]
    fn a_task_that_another_one_replaces_may_use_the_half_as_it_is_dropped() {
        let (waiter, was_free) = (Arc::new(Waiter::default()), Arc::<AtomicBool>::default());
        let task = Dropped {
            waiter: waiter.clone(),
            was_free: was_free.clone(),
        };
        let waker = Waker::from(Arc::new(task));
        assert!(waiter.wait::<()>(&Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert!(!was_free.load(Ordering::Relaxed), "it waits");
        assert!(waiter.waits(&Context::from_waker(Waker::noop())));
        assert!(was_free.load(Ordering::Relaxed), "dropped under the lock");
    }

    /// Wakes a thread.
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// What a session and its driver do with a stream: bytes come, and the reader is told of those that come after it found none.
    #[derive(Default)]
    struct Stream {
        bytes: usize,
        announced: bool,
    }

    #[test]
    fn a_reader_that_sleeps_is_always_woken() {
        const TOTAL: usize = 50_000;
        const PATIENCE: Duration = Duration::from_secs(20);
        let shared = Arc::new((Mutex::new(Stream::default()), Waiter::default()));
        let sending = shared.clone();
        let driver = thread::spawn(move || {
            let (stream, waiter) = &*sending;
            for number in 0..TOTAL {
                let mut stream = stream.lock();
                stream.bytes += 1;
                let is_news = !std::mem::replace(&mut stream.announced, true);
                let task = is_news.then(|| waiter.take()).flatten();
                drop(stream);
                if let Some(task) = task {
                    task.wake();
                }
                if number % 7 == 0 {
                    thread::yield_now();
                }
            }
        });
        let (stream, waiter) = &*shared;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let context = Context::from_waker(&waker);
        let mut read = 0;
        while read < TOTAL {
            if waiter.waits(&context) {
                let began = Instant::now();
                thread::park_timeout(PATIENCE);
                assert!(began.elapsed() < PATIENCE, "not woken after {read} bytes");
                continue;
            }
            let mut stream = stream.lock();
            // As a read with room for three: one that takes fewer has used up what there was.
            let taken = stream.bytes.min(3);
            stream.bytes -= taken;
            read += taken;
            if taken < 3 {
                stream.announced = false;
                match taken {
                    0 => assert!(waiter.wait::<()>(&context).is_pending()),
                    _ => waiter.use_up(),
                }
            }
        }
        driver.join().unwrap();
    }

    #[test]
    fn readers_wait_for_all_that_came_together_and_others_do_not() {
        let mut woken = Woken::default();
        let ((reader, reader_waker), (writer, writer_waker)) = (counted(), counted());
        woken.add_reader(Some(reader_waker.clone()));
        woken.add(Some(writer_waker));
        woken.take(true).into_iter().for_each(Waker::wake);
        assert_eq!((times(&reader), times(&writer)), (0, 1));
        woken.add_reader(Some(reader_waker));
        assert!(woken.take(true).is_empty());
        woken.take(false).into_iter().for_each(Waker::wake);
        assert_eq!((times(&reader), times(&writer)), (2, 1));
        assert!(woken.take(false).is_empty());
    }
}
