//! The protocol of ring, bell and attach (ipc/qwp_bell.c, rules 1 to 7), for the model checker loom.
//!
//! loom runs each model in every interleaving and with every value that the C11 memory model lets a
//! load return, up to a bound on preemptions. A lost wake-up is a sleeper that nobody wakes any more,
//! which loom reports as a deadlock; a record read before it is whole is a race on its cell.
//!
//! Each model takes a `Variant`: the protocol as it is, or with one thing taken away.
//!
//! What is abstracted:
//! * membarrier(2) is a SeqCst fence on both sides here. That the asymmetric barrier gives as much is
//!   shown with its real shape (an interrupt somewhere in the producer's program order) in `litmus/`.
//! * loom treats SeqCst accesses as AcqRel, so every seq_cst access of the C code that matters for
//!   store-then-load is written as an access and a SeqCst fence.
//! * The futex queue of the kernel is a mutex with a condition variable: arming compares the word and
//!   queues the waiter under the lock of its hash bucket, waking takes it off under the same lock.

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{fence, AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const PARKED: u32 = 1;
const LINGERING: u32 = 2;
const STEP: u32 = 4;
const SLOTS: usize = 4;

#[derive(Clone, Copy, PartialEq)]
pub enum Arm {
    /// Arm the wait on the even word, then store odd, fence, look, sleep.
    First,
    /// Store odd, fence, look, then arm on the odd word: the obvious order.
    Last,
}

/// The protocol, or the protocol less one thing.
#[derive(Clone, Copy)]
pub struct Variant {
    pub arm: Arm,
    pub producer_fence: bool,
    pub sidecar_fence: bool,
    pub tail_release: bool,
    pub attach_release: bool,
    pub attach_fence: bool,
    pub ring_on_renew: bool,
    /// The sidecar reads tails after it stored attach_gen, or before.
    pub look_after_attach: bool,
    /// A producer remembers the epoch it rang for, or only that it rang.
    pub rung_by_epoch: bool,
    /// A completion that came while awake is kept for the next sleep, or thrown away.
    pub keeps_completion: bool,
    /// After parked (lingering) the look asks for half full.
    pub linger_look: bool,
    pub wait_fence: bool,
    pub release_fence: bool,
    /// progress_seq is loaded before `waiting` is stored, or after the condition was asked.
    pub seq_first: bool,
    pub head_release: bool,
    pub defs_before_tail: bool,
}

pub const RIGHT: Variant = Variant {
    arm: Arm::First,
    producer_fence: true,
    sidecar_fence: true,
    tail_release: true,
    attach_release: true,
    attach_fence: true,
    ring_on_renew: true,
    look_after_attach: true,
    rung_by_epoch: true,
    keeps_completion: true,
    linger_look: true,
    wait_fence: true,
    release_fence: true,
    seq_first: true,
    head_release: true,
    defs_before_tail: true,
};

/// A futex word's queue, with at most one waiter: the sidecar's, in io_uring.
struct Futex {
    queue: Mutex<Queue>,
    completion: Condvar,
}

struct Queue {
    armed: bool,
    completed: bool,
}

impl Futex {
    fn new() -> Futex {
        Futex {
            queue: Mutex::new(Queue {
                armed: false,
                completed: false,
            }),
            completion: Condvar::new(),
        }
    }

    fn arm(&self, word: &AtomicU32, expected: u32) {
        let mut queue = self.queue.lock().unwrap();
        if word.load(Relaxed) == expected {
            queue.armed = true;
        } else {
            queue.completed = true; /* EAGAIN is a completion, too */
        }
    }

    fn wake(&self) {
        let mut queue = self.queue.lock().unwrap();
        if queue.armed {
            queue.armed = false;
            queue.completed = true;
            self.completion.notify_one();
        }
    }

    /// Sleeps for a completion and takes it.
    fn sleep(&self) {
        let mut queue = self.queue.lock().unwrap();
        while !queue.completed {
            queue = self.completion.wait(queue).unwrap();
        }
        queue.completed = false;
    }

    /// What a sidecar that forgets rule 2 would do: drop completions that came while it was awake.
    fn drop_completion(&self) {
        self.queue.lock().unwrap().completed = false;
    }
}

/// One ring's shared memory.
struct Ring {
    tail: AtomicU64,
    head: AtomicU64,
    attach_gen: AtomicU64,
    waiting: AtomicU32,
    progress_seq: AtomicU32,
    progress: Futex,
    slots: [UnsafeCell<u64>; SLOTS],
    defs_tail: AtomicU64,
    def: UnsafeCell<u64>,
}

/// One life's control file. `mapped` stands for everything written before the rename.
struct Control {
    epoch: AtomicU32,
    bell: Futex,
    mapped: UnsafeCell<u64>,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            attach_gen: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            progress_seq: AtomicU32::new(0),
            progress: Futex::new(),
            slots: [
                UnsafeCell::new(0),
                UnsafeCell::new(0),
                UnsafeCell::new(0),
                UnsafeCell::new(0),
            ],
            defs_tail: AtomicU64::new(0),
            def: UnsafeCell::new(0),
        }
    }
}

impl Control {
    fn new() -> Control {
        Control {
            epoch: AtomicU32::new(0),
            bell: Futex::new(),
            mapped: UnsafeCell::new(0),
        }
    }
}

fn fence_if(wanted: bool) {
    if wanted {
        fence(SeqCst);
    }
}

// ---- producer ----

struct Producer<'a> {
    ring: &'a Ring,
    controls: &'a [Control],
    v: Variant,
    tail: u64,
    gen: u64,
    rung: u32,
}

impl<'a> Producer<'a> {
    fn new(ring: &'a Ring, controls: &'a [Control], v: Variant, gen: u64) -> Producer<'a> {
        Producer {
            ring,
            controls,
            v,
            tail: 0,
            gen,
            rung: 0,
        }
    }

    fn publish(&mut self) {
        let tail = self.tail;
        self.ring.slots[tail as usize % SLOTS].with_mut(|slot| unsafe { *slot = 100 + tail });
        self.tail += 1;
        let order = if self.v.tail_release {
            Release
        } else {
            Relaxed
        };
        self.ring.tail.store(self.tail, order);
    }

    fn published(&mut self) {
        fence_if(self.v.producer_fence);
        let gen = self.ring.attach_gen.load(Acquire);
        if gen != self.gen {
            self.renew(gen);
            return;
        }
        if gen == 0 {
            return; /* no sidecar yet */
        }
        let epoch = self.controls[gen as usize - 1].epoch.load(Relaxed);
        let rung = if self.v.rung_by_epoch {
            epoch == self.rung
        } else {
            self.rung != 0
        };
        if epoch & PARKED != 0 && !rung {
            self.ring_bell(gen, epoch);
        }
    }

    fn ring_bell(&mut self, gen: u64, epoch: u32) {
        if epoch & LINGERING != 0 && self.tail - self.ring.head.load(Acquire) < SLOTS as u64 / 2 {
            return;
        }
        self.rung = epoch;
        self.controls[gen as usize - 1].bell.wake();
    }

    fn renew(&mut self, gen: u64) {
        let control = &self.controls[gen as usize - 1];
        control
            .mapped
            .with(|mapped| unsafe { assert_eq!(*mapped, gen) });
        self.gen = gen;
        self.rung = 0;
        if self.v.ring_on_renew {
            let epoch = control.epoch.load(Relaxed);
            if epoch & PARKED != 0 {
                self.rung = epoch;
            }
            control.bell.wake();
        }
    }

    /// qwp_bell_wait(): rule 7.
    fn wait_for_head(&mut self, position: u64) {
        loop {
            let mut seq = self.ring.progress_seq.load(Relaxed);
            self.ring.waiting.store(1, Relaxed);
            fence_if(self.v.wait_fence);
            if self.ring.head.load(Acquire) >= position {
                break;
            }
            if !self.v.seq_first {
                seq = self.ring.progress_seq.load(Relaxed);
            }
            self.ring.progress.arm(&self.ring.progress_seq, seq);
            self.ring.progress.sleep();
        }
        self.ring.waiting.store(0, Relaxed);
    }
}

// ---- sidecar ----

struct Sidecar<'a> {
    rings: &'a [Ring],
    control: &'a Control,
    v: Variant,
    epoch: u32,
    armed: bool,
    tails: Vec<u64>,
    heads: Vec<u64>,
}

impl<'a> Sidecar<'a> {
    fn new(rings: &'a [Ring], control: &'a Control, v: Variant) -> Sidecar<'a> {
        let n = rings.len();
        Sidecar {
            rings,
            control,
            v,
            epoch: 0,
            armed: false,
            tails: vec![0; n],
            heads: vec![0; n],
        }
    }

    fn arm(&mut self) {
        if !self.armed {
            self.control.bell.arm(&self.control.epoch, self.epoch);
            self.armed = true;
        }
    }

    fn park(&mut self, lingering: bool) {
        if self.epoch & PARKED != 0 {
            self.epoch = (self.epoch | (STEP - 1)) + 1;
        }
        self.epoch |= PARKED | if lingering { LINGERING } else { 0 };
        self.control.epoch.store(self.epoch, Relaxed);
        fence_if(self.v.sidecar_fence);
    }

    fn unpark(&mut self) {
        if self.epoch & PARKED != 0 {
            self.epoch = (self.epoch | (STEP - 1)) + 1;
            self.control.epoch.store(self.epoch, Release);
        }
    }

    fn look(&mut self) -> bool {
        let mut any = false;
        for (i, ring) in self.rings.iter().enumerate() {
            let tail = ring.tail.load(Acquire);
            any |= tail != self.tails[i];
            self.tails[i] = tail;
        }
        any
    }

    fn is_half_full(&self) -> bool {
        (0..self.rings.len()).any(|i| self.tails[i] - self.heads[i] >= SLOTS as u64 / 2)
    }

    fn take_all(&mut self) {
        for (i, ring) in self.rings.iter().enumerate() {
            for pos in self.heads[i]..self.tails[i] {
                ring.slots[pos as usize % SLOTS]
                    .with(|slot| unsafe { assert_eq!(*slot, 100 + pos) });
            }
            if self.tails[i] != self.heads[i] {
                self.heads[i] = self.tails[i];
                let order = if self.v.head_release {
                    Release
                } else {
                    Relaxed
                };
                ring.head.store(self.heads[i], order);
                fence_if(self.v.release_fence);
                if ring.waiting.load(Relaxed) != 0 {
                    ring.progress_seq.fetch_add(1, SeqCst);
                    ring.progress.wake();
                }
            }
        }
    }

    fn taken(&self) -> u64 {
        self.heads.iter().sum()
    }

    /// One hand-over, or less: takes what there is, else sleeps for the bell.
    fn turn(&mut self) {
        if self.look() {
            self.take_all();
            return;
        }
        if self.v.arm == Arm::First {
            self.arm();
        }
        self.park(false);
        if self.look() {
            self.unpark();
            if !self.v.keeps_completion {
                self.control.bell.drop_completion();
            }
            self.take_all();
            return;
        }
        if self.v.arm == Arm::Last {
            self.arm();
        }
        self.control.bell.sleep();
        self.armed = false;
        self.unpark();
    }

    fn attach(&mut self, gen: u64) {
        if !self.v.look_after_attach {
            self.look();
        }
        let order = if self.v.attach_release {
            Release
        } else {
            Relaxed
        };
        for ring in self.rings {
            ring.attach_gen.store(gen, order);
        }
        fence_if(self.v.attach_fence);
    }
}

// ---- models ----

/// In every interleaving there is, or in those with so many preemptions at the most; the environment
/// variable QWP_MODEL_DEEPER adds to them.
#[derive(Clone, Copy)]
enum Depth {
    All,
    Preemptions(usize),
}

fn check(depth: Depth, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let deeper = std::env::var("QWP_MODEL_DEEPER").map_or(0, |n| n.parse().expect("a number"));
    builder.preemption_bound = match depth {
        Depth::All => None,
        Depth::Preemptions(n) => Some(n + deeper),
    };
    builder.max_branches = 20_000;
    builder.check(model);
}

type Shared = Arc<(Vec<Ring>, Vec<Control>)>;

fn share(rings: usize, controls: usize) -> Shared {
    Arc::new((
        (0..rings).map(|_| Ring::new()).collect(),
        (0..controls).map(|_| Control::new()).collect(),
    ))
}

/// Rules 1 and 3: one producer publishes `count` records, one by one; the sidecar sleeps whenever
/// there is nothing, and must get all.
pub fn park(v: Variant, count: u64) {
    check(Depth::All, move || {
        let shared = share(1, 1);
        shared.0[0].attach_gen.store(1, Relaxed);
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(&other.0[0], &other.1, v, 1);
            for _ in 0..count {
                producer.publish();
                producer.published();
            }
        });
        let mut sidecar = Sidecar::new(&shared.0, &shared.1[0], v);
        while sidecar.taken() < count {
            sidecar.turn();
        }
        producer.join().unwrap();
    });
}

/// Rule 2: two producers, so that one may ring late, for an epoch that the other has ended.
pub fn park_two(v: Variant) {
    check(Depth::Preemptions(3), move || {
        let shared = share(2, 1);
        let mut producers = Vec::new();
        for i in 0..2 {
            shared.0[i].attach_gen.store(1, Relaxed);
            let other = shared.clone();
            producers.push(thread::spawn(move || {
                let mut producer = Producer::new(&other.0[i], &other.1, v, 1);
                producer.publish();
                producer.published();
            }));
        }
        let mut sidecar = Sidecar::new(&shared.0, &shared.1[0], v);
        while sidecar.taken() < 2 {
            sidecar.turn();
        }
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// Rule 5: the producer writes while no sidecar is there; one comes, attaches, and sleeps.
pub fn attach(v: Variant, count: u64) {
    check(
        if count == 1 {
            Depth::All
        } else {
            Depth::Preemptions(5)
        },
        move || {
            let shared = share(1, 1);
            let other = shared.clone();
            let producer = thread::spawn(move || {
                let mut producer = Producer::new(&other.0[0], &other.1, v, 0);
                for _ in 0..count {
                    producer.publish();
                    producer.published();
                }
            });
            shared.1[0].mapped.with_mut(|mapped| unsafe { *mapped = 1 });
            let mut sidecar = Sidecar::new(&shared.0, &shared.1[0], v);
            sidecar.attach(1);
            while sidecar.taken() < count {
                sidecar.turn();
            }
            producer.join().unwrap();
        },
    );
}

/// Rule 5: the sidecar dies after `steps` turns' beginnings, parked or not, and the next life goes on
/// from the published head.
pub fn restart(v: Variant, dies_parked: bool) {
    check(Depth::Preemptions(5), move || {
        let shared = share(1, 2);
        shared.0[0].attach_gen.store(1, Relaxed);
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(&other.0[0], &other.1, v, 1);
            for _ in 0..2 {
                producer.publish();
                producer.published();
            }
        });
        let mut first = Sidecar::new(&shared.0, &shared.1[0], v);
        if first.look() {
            first.take_all();
        }
        if dies_parked {
            first.arm();
            first.park(false);
        }
        let head = shared.0[0].head.load(Acquire);
        shared.1[1].mapped.with_mut(|mapped| unsafe { *mapped = 2 });
        let mut second = Sidecar::new(&shared.0, &shared.1[1], v);
        second.heads[0] = head;
        second.tails[0] = head;
        second.attach(2);
        while second.taken() < 2 {
            second.turn();
        }
        producer.join().unwrap();
    });
}

/// Rule 4, the crossing: a lingering sidecar (whose timer never comes here) is rung, or sees by
/// itself, that the ring is half full.
pub fn linger_crossing(v: Variant) {
    check(Depth::All, move || {
        let shared = share(1, 1);
        shared.0[0].attach_gen.store(1, Relaxed);
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(&other.0[0], &other.1, v, 1);
            for _ in 0..SLOTS / 2 {
                producer.publish();
                producer.published();
            }
        });
        let mut sidecar = Sidecar::new(&shared.0, &shared.1[0], v);
        sidecar.arm();
        sidecar.park(true);
        sidecar.look();
        if !(v.linger_look && sidecar.is_half_full()) {
            sidecar.control.bell.sleep();
            sidecar.look();
        }
        assert!(sidecar.is_half_full());
        sidecar.unpark();
        sidecar.take_all();
        producer.join().unwrap();
    });
}

/// Rule 4, the end: the timer comes (at any time), the sidecar takes what there is and parks for
/// good without having been awake in between.
pub fn linger_then_park(v: Variant) {
    check(Depth::Preemptions(3), move || {
        let shared = share(1, 1);
        shared.0[0].attach_gen.store(1, Relaxed);
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(&other.0[0], &other.1, v, 1);
            for _ in 0..3 {
                producer.publish();
                producer.published();
            }
        });
        let mut sidecar = Sidecar::new(&shared.0, &shared.1[0], v);
        while sidecar.taken() < 3 {
            sidecar.arm();
            sidecar.park(true);
            sidecar.look();
            sidecar.take_all();
            if sidecar.taken() == 3 {
                break;
            }
            sidecar.park(false);
            if !sidecar.look() {
                sidecar.control.bell.sleep();
                sidecar.armed = false;
                sidecar.look();
            }
            sidecar.unpark();
            sidecar.take_all();
        }
        producer.join().unwrap();
    });
}

/// Rule 7: a producer that waits until its records are stored; the slots are reused, so head's order
/// counts, too.
pub fn wait(v: Variant) {
    check(Depth::Preemptions(4), move || {
        let shared = share(1, 1);
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(&other.0[0], &other.1, v, 0);
            for round in 1..=2 {
                producer.publish();
                producer.wait_for_head(round);
                /* The room below head is ours again. */
                other.0[0].slots[0].with_mut(|slot| unsafe { *slot = 100 });
            }
        });
        let mut sidecar = Sidecar::new(&shared.0, &shared.1[0], v);
        while sidecar.taken() < 2 {
            if sidecar.look() {
                sidecar.take_all();
            } else {
                thread::yield_now();
            }
        }
        producer.join().unwrap();
    });
}

/// Definitions: one that a record uses is there when the record is.
pub fn definitions(v: Variant) {
    check(Depth::All, move || {
        let shared = share(1, 1);
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let ring = &other.0[0];
            let mut producer = Producer::new(ring, &other.1, v, 0);
            if !v.defs_before_tail {
                producer.publish();
            }
            ring.def.with_mut(|def| unsafe { *def = 7 });
            ring.defs_tail.store(1, Release);
            if v.defs_before_tail {
                producer.publish();
            }
        });
        let ring = &shared.0[0];
        if ring.tail.load(Acquire) == 1 {
            assert_eq!(ring.defs_tail.load(Acquire), 1);
            ring.def.with(|def| unsafe { assert_eq!(*def, 7) });
        }
        producer.join().unwrap();
    });
}
