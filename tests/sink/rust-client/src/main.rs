//! Writes rows of every type the Rust client knows to a QWP server, by row and by column chunk, and
//! prints what a reader should see: one JSON line a row, in the form qwp-sink uses.
//!
//! usage: rust-client CONF SEED rows|chunks

use questdb::ingress::column_sender::{Chunk, Validity};
use questdb::ingress::{AckLevel, Sender, TimestampMicros, TimestampNanos, TimestampUnit};
use questdb::{QuestDb, Result};
use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

const ROWS: usize = 1500;
const BASE: i64 = 1_700_000_000_000_000_000;
const WAIT: Duration = Duration::from_secs(60);
const TEXTS: [&str; 6] = ["", "a", "hello", "žluťoučký 🐎", "say \"no\" \\ \n\t", "日本"];

/// xorshift64*: the same numbers everywhere for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    fn double(&mut self) -> f64 {
        let bits = f64::from_bits(self.next());
        let any = if bits.is_nan() { 2.5 } else { bits };
        let even = self.below(1000) as f64;
        self.pick(&[0.0, -0.0, 0.1, 1.0 / 3.0, f64::MAX, 5e-324, f64::INFINITY, any, even])
    }
    /// Never the lowest: that means null.
    fn long(&mut self) -> i64 {
        let any = (self.next() as i64).max(i64::MIN + 1);
        self.pick(&[0, 1, -1, i64::MAX, i64::MIN + 1, any])
    }
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn json_double(v: f64) -> String {
    if v.is_finite() {
        format!("{v:?}")
    } else {
        (if v.is_nan() { "\"NaN\"" } else if v > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" }).into()
    }
}

fn json_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("\"");
    for part in bytes.chunks(3) {
        let word = part.iter().fold(0u32, |w, b| w << 8 | *b as u32) << (8 * (3 - part.len()));
        for i in 0..4 {
            if i <= part.len() {
                out.push(DIGITS[(word >> (18 - 6 * i) & 63) as usize] as char);
            } else {
                out.push('=');
            }
        }
    }
    out.push('"');
    out
}

fn json_uuid(lo: u64, hi: u64) -> String {
    format!("\"{:08x}-{:04x}-{:04x}-{:04x}-{:012x}\"", hi >> 32, hi >> 16 & 0xffff, hi & 0xffff, lo >> 48, lo & 0xffff_ffff_ffff)
}

/// Little-endian bytes as 0x and digits without leading zeros.
fn json_long256(bytes: &[u8; 32]) -> String {
    let digits: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
    let short = digits.trim_start_matches('0');
    format!("\"0x{}\"", if short.is_empty() { "0" } else { short })
}

fn json_decimal(mantissa: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", mantissa.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if mantissa < 0 { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    format!("\"{sign}{whole}{point}{fraction}\"")
}

fn json_geohash(bits: u64, precision: u8) -> String {
    const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    if precision % 5 != 0 {
        return format!("\"{:0width$b}\"", bits, width = precision as usize);
    }
    let count = precision / 5;
    let text: String = (0..count).map(|i| DIGITS[(bits >> (5 * (count - 1 - i)) & 31) as usize] as char).collect();
    format!("\"{text}\"")
}

fn json_list<T>(values: &[T], show: impl Fn(&T) -> String) -> String {
    format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(","))
}

/// What a row should look like; missing columns are left out.
struct Row {
    table: String,
    columns: Vec<(String, String)>,
    ts: Option<(i64, &'static str)>,
}

impl Row {
    fn new(table: &str) -> Self {
        Row { table: table.into(), columns: Vec::new(), ts: None }
    }
    fn add(&mut self, name: &str, shown: String) {
        self.columns.push((name.into(), shown));
    }
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let columns: Vec<_> = self.columns.iter().map(|(n, v)| format!("{}:{}", json_text(n), v)).collect();
        let (ts, unit) = match self.ts {
            Some((ts, unit)) => (ts.to_string(), format!("\"{unit}\"")),
            None => ("null".into(), "null".into()),
        };
        writeln!(out, "{{\"table\":{},\"row\":{{{}}},\"ts\":{},\"ts_unit\":{}}}", json_text(&self.table), columns.join(","), ts, unit)
    }
}

fn random_bytes<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|_| random.next() as u8)
}

fn write_rows(conf: &str, random: &mut Random) -> Result<Vec<Row>> {
    let mut sender = Sender::from_conf(conf)?;
    let mut buffer = sender.new_buffer();
    let mut rows = Vec::new();
    for i in 0..ROWS {
        let table = random.pick(&["nanos", "micros", "Žádný čas"]);
        let mut row = Row::new(table);
        buffer.table(table)?;
        if random.chance(80) {
            let value = format!("symbol {}", random.below(400));
            buffer.symbol("sym", value.as_str())?;
            row.add("sym", json_text(&value));
        }
        buffer.column_i64("seq", i as i64)?;
        row.add("seq", i.to_string());
        if random.chance(70) {
            let v = random.chance(50);
            buffer.column_bool("flag", v)?;
            row.add("flag", v.to_string());
        }
        if random.chance(70) {
            let v = random.next() as i8;
            buffer.column_i8("i8", v)?;
            row.add("i8", v.to_string());
        }
        if random.chance(70) {
            let v = random.next() as i16;
            buffer.column_i16("i16", v)?;
            row.add("i16", v.to_string());
        }
        if random.chance(70) {
            let v = (random.next() as i32).max(i32::MIN + 1);
            buffer.column_i32("i32", v)?;
            row.add("i32", v.to_string());
        }
        if random.chance(70) {
            let v = random.long();
            buffer.column_i64("i64", v)?;
            row.add("i64", v.to_string());
        }
        if random.chance(70) {
            let v = random.below(100_000) as f32 / 7.0;
            buffer.column_f32("f32", v)?;
            row.add("f32", format!("{v:?}"));
        }
        if random.chance(70) {
            let v = random.double();
            buffer.column_f64("f64", v)?;
            row.add("f64", json_double(v));
        }
        if random.chance(70) {
            let v = random.pick(&TEXTS);
            buffer.column_str("text", v)?;
            row.add("text", json_text(v));
        }
        if random.chance(70) {
            let v = random.long() as i128 * 1000;
            buffer.column_dec("dec", json_decimal(v, 5).trim_matches('"'))?;
            row.add("dec", json_decimal(v, 5));
        }
        if random.chance(70) {
            let v = random.below(1 << 50) as i128;
            buffer.column_dec64("dec64", json_decimal(v, 2).trim_matches('"'))?;
            row.add("dec64", json_decimal(v, 2));
        }
        if random.chance(70) {
            let v = -(random.below(1 << 50) as i128) << 40;
            buffer.column_dec128("dec128", json_decimal(v, 9).trim_matches('"'))?;
            row.add("dec128", json_decimal(v, 9));
        }
        if random.chance(70) {
            let (lo, hi) = (random.next(), random.next());
            buffer.column_uuid("uuid", lo, hi)?;
            row.add("uuid", json_uuid(lo, hi));
        }
        if random.chance(70) {
            let v = random_bytes::<32>(random);
            buffer.column_long256("wide", &v)?;
            row.add("wide", json_long256(&v));
        }
        if random.chance(70) {
            let v = Ipv4Addr::from(random.next() as u32 | 1);
            buffer.column_ipv4("ip", v)?;
            row.add("ip", format!("\"{v}\""));
        }
        if random.chance(70) {
            let v = random.below(1 << 45) as i64;
            buffer.column_date("date", v)?;
            row.add("date", v.to_string());
        }
        if random.chance(70) {
            let v = random.pick(&['a', 'Z', 'ž', '€', '"']);
            buffer.column_char("char", v as u16)?;
            row.add("char", json_text(&v.to_string()));
        }
        if random.chance(70) {
            let len = random.pick(&[0usize, 1, 2, 3, 64]);
            let v = random_bytes::<64>(random);
            buffer.column_binary("raw", &v[..len])?;
            row.add("raw", json_base64(&v[..len]));
        }
        if random.chance(70) {
            let v = random.next() >> 24;
            buffer.column_geohash("geo", v, 40)?;
            row.add("geo", json_geohash(v, 40));
        }
        if random.chance(70) {
            let v = random.below(128);
            buffer.column_geohash("geo7", v, 7)?;
            row.add("geo7", json_geohash(v, 7));
        }
        if random.chance(70) {
            let v: Vec<f64> = (0..random.below(5)).map(|_| random.double()).collect();
            buffer.column_arr("line", &v)?;
            row.add("line", json_list(&v, |x| json_double(*x)));
        }
        if random.chance(70) {
            let width = 1 + random.below(3);
            let v: Vec<Vec<f64>> = (0..1 + random.below(3)).map(|_| (0..width).map(|_| random.double()).collect()).collect();
            buffer.column_arr("matrix", &v)?;
            row.add("matrix", json_list(&v, |x| json_list(x, |y| json_double(*y))));
        }
        if random.chance(70) {
            let v: Vec<i64> = (0..random.below(5)).map(|_| random.long()).collect();
            buffer.column_arr("longs", &v)?;
            row.add("longs", json_list(&v, |x| x.to_string()));
        }
        if random.chance(70) {
            let v = random.below(1 << 60) as i64;
            buffer.column_ts("us", TimestampMicros::new(v))?;
            row.add("us", v.to_string());
        }
        if random.chance(70) {
            let v = random.below(1 << 62) as i64;
            buffer.column_ts("ns", TimestampNanos::new(v))?;
            row.add("ns", v.to_string());
        }
        match table {
            "nanos" => {
                let ts = BASE + i as i64;
                buffer.at(TimestampNanos::new(ts))?;
                row.ts = Some((ts, "ns"));
            }
            "micros" => {
                let ts = BASE / 1000 - i as i64;
                buffer.at(TimestampMicros::new(ts))?;
                row.ts = Some((ts, "us"));
            }
            _ => buffer.at_now()?,
        }
        rows.push(row);
        if i % 200 == 199 {
            sender.flush(&mut buffer)?;
        }
    }
    sender.flush(&mut buffer)?;
    sender.wait(AckLevel::Ok, WAIT)?;
    sender.close_drain()?;
    Ok(rows)
}

/// One bit a row, from a predicate.
fn bitmap(rows: usize, set: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut bits = vec![0u8; rows.div_ceil(8)];
    for i in (0..rows).filter(|i| set(*i)) {
        bits[i / 8] |= 1 << (i % 8);
    }
    bits
}

/// Texts end to end with their offsets.
fn joined<'a>(texts: impl Iterator<Item = &'a [u8]>) -> (Vec<i32>, Vec<u8>) {
    let (mut offsets, mut bytes) = (vec![0], Vec::new());
    for text in texts {
        bytes.extend_from_slice(text);
        offsets.push(bytes.len() as i32);
    }
    (offsets, bytes)
}

fn write_chunk(sender: &mut questdb::BorrowedSender<'_>, random: &mut Random, table: &str, rows: usize, nulls: u64) -> Result<Vec<Row>> {
    let valid: Vec<bool> = (0..rows).map(|_| !random.chance(nulls)).collect();
    let valid_bits = bitmap(rows, |i| valid[i]);
    let validity = if nulls > 0 { Some(Validity::from_bitmap(&valid_bits, rows)?) } else { None };
    let validity = validity.as_ref();
    fn many<T>(rows: usize, mut make: impl FnMut() -> T) -> Vec<T> {
        (0..rows).map(|_| make()).collect()
    }
    let seq: Vec<i64> = (0..rows as i64).collect();
    let flags = many(rows, || random.chance(50));
    let flag_bits = bitmap(rows, |i| flags[i]);
    let i8s = many(rows, || random.next() as i8);
    let i16s = many(rows, || random.next() as i16);
    let i32s = many(rows, || (random.next() as i32).max(i32::MIN + 1));
    let i64s = many(rows, || random.long());
    let f32s = many(rows, || random.below(100_000) as f32 / 7.0);
    let f64s = many(rows, || random.double());
    let dec64s = many(rows, || random.next() as i64 >> 8);
    let dec128s = many(rows, || (random.next() as i64 as i128) << 30);
    let dec256s = many(rows, || {
        let v = random.next() as i64;
        let mut bytes = [if v < 0 { 0xff } else { 0 }; 32];
        bytes[..8].copy_from_slice(&v.to_le_bytes());
        bytes
    });
    let matrices = many(4 * rows, || random.double());
    let uuids = many(rows, || random_bytes::<16>(random));
    let wides = many(rows, || random_bytes::<32>(random));
    let ips = many(rows, || random.next() as u32 | 1);
    let times = many(rows, || random.below(1 << 60) as i64);
    let dates = many(rows, || random.below(1 << 45) as i64);
    let texts = many(rows, || random.pick(&TEXTS));
    let (text_offsets, text_bytes) = joined(texts.iter().map(|t| t.as_bytes()));
    let raws = many(rows, || random.next().to_le_bytes()[..random.below(9) as usize].to_vec());
    let (raw_offsets, raw_bytes) = joined(raws.iter().map(|r| r.as_slice()));
    let names: Vec<String> = (0..200).map(|i| format!("entry {i}")).collect();
    let (name_offsets, name_bytes) = joined(names.iter().map(|n| n.as_bytes()));
    let codes = many(rows, || random.below(200) as i32);
    let at: Vec<i64> = (0..rows as i64).map(|i| BASE + 1000 * i).collect();

    let mut chunk = Chunk::new(table);
    chunk.column_i64("seq", &seq, None)?;
    chunk.column_bool("flag", &flag_bits, rows, validity)?;
    chunk.column_i8("i8", &i8s, validity)?;
    chunk.column_i16("i16", &i16s, validity)?;
    chunk.column_i32("i32", &i32s, validity)?;
    chunk.column_i64("i64", &i64s, validity)?;
    chunk.column_f32("f32", &f32s, validity)?;
    chunk.column_f64("f64", &f64s, validity)?;
    chunk.column_decimal64("dec64", &dec64s, 3, validity)?;
    chunk.column_decimal128("dec128", &dec128s, 10, validity)?;
    chunk.column_decimal256("dec256", &dec256s, 0, validity)?;
    chunk.column_f64_array("matrix", &matrices, rows, &[2, 2], validity)?;
    chunk.column_uuid("uuid", &uuids, validity)?;
    chunk.column_long256("wide", &wides, validity)?;
    chunk.column_ipv4("ip", &ips, validity)?;
    chunk.column_ts("us", &times, TimestampUnit::Micros, validity)?;
    chunk.column_date("date", &dates, validity)?;
    chunk.column_str("text", &text_offsets, &text_bytes, validity)?;
    chunk.column_binary("raw", &raw_offsets, &raw_bytes, validity)?;
    chunk.symbol_i32("sym", &codes, &name_offsets, &name_bytes, validity)?;
    chunk.at_nanos(&at)?;
    sender.flush_and_wait(&mut chunk, AckLevel::Ok)?;

    Ok((0..rows)
        .map(|i| {
            let mut row = Row::new(table);
            row.ts = Some((at[i], "ns"));
            row.add("seq", seq[i].to_string());
            if !valid[i] {
                return row;
            }
            row.add("flag", flags[i].to_string());
            row.add("i8", i8s[i].to_string());
            row.add("i16", i16s[i].to_string());
            row.add("i32", i32s[i].to_string());
            row.add("i64", i64s[i].to_string());
            row.add("f32", format!("{:?}", f32s[i]));
            row.add("f64", json_double(f64s[i]));
            row.add("dec64", json_decimal(dec64s[i] as i128, 3));
            row.add("dec128", json_decimal(dec128s[i], 10));
            row.add("dec256", json_decimal(i64::from_le_bytes(dec256s[i][..8].try_into().unwrap()) as i128, 0));
            let matrix: Vec<&[f64]> = matrices[4 * i..4 * i + 4].chunks(2).collect();
            row.add("matrix", json_list(&matrix, |x| json_list(x, |y| json_double(*y))));
            let uuid = u128::from_be_bytes(uuids[i]);
            row.add("uuid", json_uuid(uuid as u64, (uuid >> 64) as u64));
            row.add("wide", json_long256(&wides[i]));
            row.add("ip", format!("\"{}\"", Ipv4Addr::from(ips[i])));
            row.add("us", times[i].to_string());
            row.add("date", dates[i].to_string());
            row.add("text", json_text(texts[i]));
            row.add("raw", json_base64(&raws[i]));
            row.add("sym", json_text(&names[codes[i] as usize]));
            row
        })
        .collect())
}

fn write_chunks(conf: &str, random: &mut Random) -> Result<Vec<Row>> {
    let db = QuestDb::connect(&format!("{conf}query_pool_min=0;"))?;
    let mut rows = Vec::new();
    {
        let mut sender = db.borrow_sender()?;
        rows.extend(write_chunk(&mut sender, random, "dense", ROWS, 0)?);
        rows.extend(write_chunk(&mut sender, random, "holes", ROWS, 30)?);
        rows.extend(write_chunk(&mut sender, random, "nothing", 9, 100)?);
        rows.extend(write_chunk(&mut sender, random, "one", 1, 0)?);
    }
    db.close();
    Ok(rows)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (conf, seed, how) = (&arguments[1], arguments[2].parse::<u64>().expect("seed"), &arguments[3]);
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    let written = match how.as_str() {
        "rows" => write_rows(conf, &mut random),
        _ => write_chunks(conf, &mut random),
    };
    match written {
        Ok(rows) => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            for row in &rows {
                row.print(&mut out).expect("stdout");
            }
            out.flush().expect("stdout");
        }
        Err(error) => {
            eprintln!("rust-client: {error}");
            std::process::exit(1);
        }
    }
}
