//! Trade rows of 6 columns from the Rust client to a QWP server.
//!
//! usage: rust-peer CONF rows|chunks|paced|idle ROWS UNIT TABLES [RATE]
//!
//! rows:    through the row API, a flush after each UNIT rows, TABLES tables in turn
//! chunks:  columns of UNIT rows each, flushed one after another
//! paced:   RATE rows a second, flushed one by one; `id` holds the monotonic clock
//! idle:    one row, then nothing until stdin ends
//!
//! Prints one JSON object: seconds until the last row was given to the client, until all were
//! acknowledged, and CPU seconds of the process in between.

use questdb::ingress::column_sender::Chunk;
use questdb::ingress::{AckLevel, Buffer, Sender, TimestampNanos};
use questdb::{QuestDb, Result};
use std::time::{Duration, Instant};

const T0: i64 = 1_700_000_000_000_000_000;
const SYMBOLS: usize = 100;
const WAIT: Duration = Duration::from_secs(300);

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, at: *mut Timespec) -> i32;
}

/// CLOCK_MONOTONIC, which the server of this host compares with.
fn monotonic() -> i64 {
    let mut at = Timespec { seconds: 0, nanos: 0 };
    unsafe { clock_gettime(1, &mut at) };
    at.seconds * 1_000_000_000 + at.nanos
}

/// User and system time of the process, threads that ended included.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

struct Outcome {
    given: Duration,
    acked: Duration,
    cpu: f64,
}

/// The row API's sender with what its rows need.
struct Load {
    sender: Sender,
    buffer: Buffer,
    symbols: Vec<String>,
    names: Vec<String>,
}

impl Load {
    fn new(conf: &str, tables: usize) -> Result<Load> {
        let sender = Sender::from_conf(conf)?;
        let buffer = sender.new_buffer();
        let symbols = (0..SYMBOLS).map(|i| format!("sym-{i}")).collect();
        let names = (0..tables).map(|i| format!("trades_{i}")).collect();
        Ok(Load { sender, buffer, symbols, names })
    }

    fn row(&mut self, n: usize, id: i64) -> Result<()> {
        self.buffer
            .table(self.names[n % self.names.len()].as_str())?
            .symbol("symbol", self.symbols[n % SYMBOLS].as_str())?
            .symbol("side", self.symbols[n & 1].as_str())?
            .column_f64("price", n as f64 * 0.01)?
            .column_f64("amount", n as f64 * 0.01)?
            .column_i64("id", id)?
            .column_bool("maker", n & 1 != 0)?
            .at(TimestampNanos::new(T0 + n as i64))?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.sender.flush(&mut self.buffer)
    }
}

fn rows(conf: &str, count: usize, unit: usize, tables: usize) -> Result<Outcome> {
    let mut load = Load::new(conf, tables)?;
    let before = cpu_s();
    let start = Instant::now();
    for n in 0..count {
        load.row(n, n as i64)?;
        if (n + 1) % unit == 0 {
            load.flush()?;
        }
    }
    load.flush()?;
    let given = start.elapsed();
    load.sender.wait(AckLevel::Ok, WAIT)?;
    let outcome = Outcome { given, acked: start.elapsed(), cpu: cpu_s() - before };
    load.sender.close_drain()?;
    Ok(outcome)
}

fn paced(conf: &str, count: usize, rate: usize) -> Result<Outcome> {
    let mut load = Load::new(conf, 1)?;
    let before = cpu_s();
    let start = Instant::now();
    for n in 0..count {
        let due = Duration::from_nanos(n as u64 * 1_000_000_000 / rate as u64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        load.row(n, monotonic())?;
        load.flush()?;
    }
    let given = start.elapsed();
    load.sender.wait(AckLevel::Ok, WAIT)?;
    let outcome = Outcome { given, acked: start.elapsed(), cpu: cpu_s() - before };
    load.sender.close_drain()?;
    Ok(outcome)
}

fn idle(conf: &str) -> Result<Outcome> {
    let mut load = Load::new(conf, 1)?;
    load.row(0, 0)?;
    load.flush()?;
    load.sender.wait(AckLevel::Ok, WAIT)?;
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("stdin");
    load.sender.close_drain()?;
    Ok(Outcome { given: Duration::ZERO, acked: Duration::ZERO, cpu: 0.0 })
}

fn chunks(conf: &str, count: usize, unit: usize) -> Result<Outcome> {
    let (mut offsets, mut bytes) = (vec![0i32], Vec::new());
    for i in 0..SYMBOLS {
        bytes.extend_from_slice(format!("sym-{i}").as_bytes());
        offsets.push(bytes.len() as i32);
    }
    let symbols: Vec<i32> = (0..unit).map(|i| (i % SYMBOLS) as i32).collect();
    let sides: Vec<i32> = (0..unit).map(|i| (i & 1) as i32).collect();
    let prices: Vec<f64> = (0..unit).map(|i| i as f64 * 0.01).collect();
    let ids: Vec<i64> = (0..unit as i64).collect();
    let at: Vec<i64> = (0..unit as i64).map(|i| T0 + i).collect();
    let makers = vec![0xaau8; unit.div_ceil(8)];
    let db = QuestDb::connect(&format!("{conf}query_pool_min=0;"))?;
    let outcome = {
        let mut sender = db.borrow_sender()?;
        let before = cpu_s();
        let start = Instant::now();
        for _ in 0..count / unit {
            let mut chunk = Chunk::new("trades_0");
            chunk.symbol_i32("symbol", &symbols, &offsets, &bytes, None)?;
            chunk.symbol_i32("side", &sides, &offsets, &bytes, None)?;
            chunk.column_f64("price", &prices, None)?;
            chunk.column_f64("amount", &prices, None)?;
            chunk.column_i64("id", &ids, None)?;
            chunk.column_bool("maker", &makers, unit, None)?;
            chunk.at_nanos(&at)?;
            sender.flush(&mut chunk)?;
        }
        let given = start.elapsed();
        sender.wait(AckLevel::Ok, WAIT)?;
        Outcome { given, acked: start.elapsed(), cpu: cpu_s() - before }
    };
    db.close();
    Ok(outcome)
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |i: usize| words[i].parse::<usize>().expect("a number");
    let (conf, count, unit, tables) = (&words[1], number(3), number(4), number(5));
    let done = match words[2].as_str() {
        "rows" => rows(conf, count, unit, tables),
        "paced" => paced(conf, count, number(6)),
        "idle" => idle(conf),
        _ => chunks(conf, count, unit),
    };
    match done {
        Ok(o) => println!(
            "{{\"rows\":{count},\"given_s\":{:.6},\"acked_s\":{:.6},\"cpu_s\":{:.3}}}",
            o.given.as_secs_f64(),
            o.acked.as_secs_f64(),
            o.cpu
        ),
        Err(error) => {
            eprintln!("rust-peer: {error}");
            std::process::exit(1);
        }
    }
}
