//! Opens a slot with the Rust client, writes rows if told to, and waits for acknowledgements if told to:
//! what client_slot.py is for the Python client.
//!
//! usage: client-slot CONF ROWS WAIT_SECONDS      0 seconds: ends as a crash would

use questdb::ingress::{AckLevel, Sender, TimestampNanos};
use questdb::Result;
use std::time::Duration;

fn run(conf: &str, rows: i64, seconds: u64) -> Result<()> {
    let mut sender = Sender::from_conf(conf)?;
    let mut buffer = sender.new_buffer();
    for n in 0..rows {
        buffer
            .table("client")?
            .symbol("producer", "rs")?
            .symbol("tag", format!("rs-{n}").as_str())?
            .column_i64("seq", n)?
            .at(TimestampNanos::new(1_700_000_000_000_000_000 + n))?;
        if n % 50 == 49 {
            sender.flush(&mut buffer)?;
        }
    }
    sender.flush(&mut buffer)?;
    if seconds > 0 {
        sender.wait(AckLevel::Ok, Duration::from_secs(seconds))?;
    }
    println!("{:?} {:?}", sender.acked_fsn()?, sender.published_fsn()?);
    if seconds == 0 {
        std::process::exit(0); // nothing is dropped, so nothing is flushed or waited for
    }
    sender.close_drain()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (rows, seconds) = (arguments[2].parse().expect("rows"), arguments[3].parse().expect("seconds"));
    if let Err(error) = run(&arguments[1], rows, seconds) {
        eprintln!("client-slot: {error}");
        std::process::exit(1);
    }
}
