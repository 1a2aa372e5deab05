//! Runs every model: the protocol as it is must hold, and less one thing it must fail, each in the way
//! that is expected. One process a case, since a failed execution cannot be unwound.
//!
//! `cargo run --release` runs all and prints a table; `cargo run --release NAME` runs one.

use qwp_ipc_model as model;
use qwp_ipc_model::{Arm, Variant, RIGHT};
use std::process::{exit, Command};
use std::time::Instant;

/// What the checker is to say.
#[derive(Clone, Copy)]
enum Expect {
    Holds,
    /// A sleeper that nobody wakes.
    Lost,
    /// A cell read while it may be written, or a value that is not there yet.
    Torn,
}
use Expect::{Holds, Lost, Torn};

type Case = (&'static str, Expect, fn());

fn less(change: fn(&mut Variant)) -> Variant {
    let mut v = RIGHT;
    change(&mut v);
    v
}

const CASES: &[Case] = &[
    ("park, 1 record", Holds, || model::park(RIGHT, 1)),
    ("park, 2 records", Holds, || model::park(RIGHT, 2)),
    ("park, 2 producers", Holds, || model::park_two(RIGHT)),
    ("attach, 1 record", Holds, || model::attach(RIGHT, 1)),
    ("attach, 2 records", Holds, || model::attach(RIGHT, 2)),
    ("restart, died awake", Holds, || {
        model::restart(RIGHT, false)
    }),
    ("restart, died parked", Holds, || {
        model::restart(RIGHT, true)
    }),
    ("linger, crossing half", Holds, || {
        model::linger_crossing(RIGHT)
    }),
    ("linger, then park", Holds, || {
        model::linger_then_park(RIGHT)
    }),
    ("waiting producer", Holds, || model::wait(RIGHT)),
    ("definitions", Holds, || model::definitions(RIGHT)),
    ("park: odd, look, arm", Lost, || {
        model::park(less(|v| v.arm = Arm::Last), 1)
    }),
    ("park: no fence in producer", Lost, || {
        model::park(less(|v| v.producer_fence = false), 1)
    }),
    ("park: no fence in sidecar", Lost, || {
        model::park(less(|v| v.sidecar_fence = false), 1)
    }),
    ("park: relaxed tail", Torn, || {
        model::park(less(|v| v.tail_release = false), 1)
    }),
    ("park: rung once for ever", Lost, || {
        model::park(less(|v| v.rung_by_epoch = false), 2)
    }),
    ("park: late completion dropped", Lost, || {
        model::park_two(less(|v| v.keeps_completion = false))
    }),
    /* The barrier of the next park does as well, where parking has one: see litmus/. */
    ("attach: no fence but the park's", Holds, || {
        model::attach(less(|v| v.attach_fence = false), 1)
    }),
    ("attach: no fence in sidecar", Lost, || {
        model::attach(
            less(|v| {
                v.attach_fence = false;
                v.sidecar_fence = false;
            }),
            1,
        )
    }),
    ("attach: no fence in producer", Lost, || {
        model::attach(less(|v| v.producer_fence = false), 1)
    }),
    ("attach: relaxed attach_gen", Torn, || {
        model::attach(less(|v| v.attach_release = false), 1)
    }),
    ("attach: tail read before only", Lost, || {
        model::attach(less(|v| v.look_after_attach = false), 1)
    }),
    ("attach: no ring on renewal", Lost, || {
        model::attach(less(|v| v.ring_on_renew = false), 1)
    }),
    ("linger: no look for half", Lost, || {
        model::linger_crossing(less(|v| v.linger_look = false))
    }),
    ("wait: no fence in producer", Lost, || {
        model::wait(less(|v| v.wait_fence = false))
    }),
    ("wait: no fence in sidecar", Lost, || {
        model::wait(less(|v| v.release_fence = false))
    }),
    ("wait: progress_seq read late", Lost, || {
        model::wait(less(|v| v.seq_first = false))
    }),
    ("wait: relaxed head", Torn, || {
        model::wait(less(|v| v.head_release = false))
    }),
    ("definition after its record", Torn, || {
        model::definitions(less(|v| v.defs_before_tail = false))
    }),
];

/// In a process of its own: exits 0 when the model holds, 101 with the checker's words otherwise.
fn run_one(name: &str) -> ! {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        exit(101);
    }));
    match CASES.iter().find(|case| case.0 == name) {
        Some(case) => (case.2)(),
        None => {
            eprintln!("no such case: {name}");
            exit(2);
        }
    }
    exit(0);
}

fn said(code: Option<i32>, words: &str) -> &'static str {
    match code {
        Some(0) => "holds",
        Some(101) if words.contains("deadlock") => "lost wake-up",
        Some(101) if words.contains("Causality violation") => "torn record",
        Some(101) if words.contains("assertion") => "torn record",
        _ => "neither",
    }
}

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        run_one(&name);
    }
    let program = std::env::current_exe().expect("own path");
    let mut wrong = 0;
    println!(
        "{:<34} {:<14} {:<14} {:>7}",
        "case", "expected", "found", "s"
    );
    for (name, expect, _) in CASES {
        let expected = match expect {
            Holds => "holds",
            Lost => "lost wake-up",
            Torn => "torn record",
        };
        let start = Instant::now();
        let output = Command::new(&program)
            .arg(name)
            .output()
            .expect("start a case");
        let words = String::from_utf8_lossy(&output.stderr);
        let found = said(output.status.code(), &words);
        let seconds = start.elapsed().as_secs_f64();
        println!("{name:<34} {expected:<14} {found:<14} {seconds:>7.1}");
        if found != expected {
            wrong += 1;
            eprintln!("{words}");
        }
    }
    exit(if wrong == 0 { 0 } else { 1 });
}
