//! Hostile input: whatever a message or a subject holds, reading it neither panics nor takes
//! more memory than is in proportion, and what was understood can be written and read again.
//!
//! Inputs are mutated from the saved corpus in `tests/corpus/<target>`, which is replayed in
//! full every time. A finding is saved there, so that it fails until it is fixed and guards the
//! fix afterwards. `CHAPAR_FUZZ_SECONDS` (per target, default 1.5) and `CHAPAR_FUZZ_SEED` make
//! a run longer and different.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a helper that fails is a test that fails"
)]
#![allow(unsafe_code, reason = "a global allocator that counts cannot be written without")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use chapar_core::dialect::{Dialect, EncodeError};
use chapar_core::{Grammar, Subject, SubjectError};
use support::mutation::{Random, mutate};
use support::{dialect, parse_message};

#[test]
fn metadata_json_messages() {
    fuzz_dialect("metadata-json");
}

#[test]
fn flat_json_messages() {
    fuzz_dialect("flat-json");
}

#[test]
fn structured_cloud_events() {
    fuzz_dialect("cloudevents-structured");
}

#[test]
fn http_cloud_events() {
    fuzz_dialect("cloudevents-http");
}

#[test]
fn kafka_cloud_events() {
    fuzz_dialect("cloudevents-kafka");
}

#[test]
fn nats_cloud_events() {
    fuzz_dialect("cloudevents-nats");
}

#[test]
fn pubsub_cloud_events() {
    fuzz_dialect("cloudevents-pubsub");
}

#[test]
fn meridian_messages() {
    fuzz_dialect("meridian");
}

#[test]
fn subjects() {
    fuzz("subjects", |input| {
        let text = String::from_utf8_lossy(input);
        for grammar in
            [Grammar::Prefixed, Grammar::Partitioned, Grammar::Kebab, Grammar::Plain, Grammar::Free]
        {
            check_subject(&text, Subject::parse(grammar, &text))?;
        }
        check_subject(&text, Subject::exception(Some("melmastoon"), &text))
    });
}

fn check_subject(text: &str, parsed: Result<Subject, SubjectError>) -> Result<(), String> {
    match parsed {
        Ok(subject) => {
            let whole = subject.to_string() == text && text.starts_with(subject.event_type());
            let known = subject.version() > 0 && text.contains(subject.service());
            if whole && known { Ok(()) } else { Err(format!("{subject:?} is not {text:?}")) }
        }
        Err(error) => {
            let shown = error.to_string().len() + error.pointer().len();
            if shown < 8 * 1024 { Ok(()) } else { Err(format!("{shown} bytes of complaint")) }
        }
    }
}

fn fuzz_dialect(name: &'static str) {
    let dialect = dialect(name);
    fuzz(name, |input| check_dialect(&*dialect, input));
}

fn check_dialect(dialect: &dyn Dialect, input: &[u8]) -> Result<(), String> {
    let message = parse_message(input);
    let before = LIVE.get();
    PEAK.set(before);
    let decoded = dialect.decode(&message);
    let peak = usize::try_from(PEAK.get() - before).unwrap_or(0);
    let most = 64 * input.len() + (1 << 20);
    if peak > most {
        return Err(format!("{peak} bytes allocated for {} of input", input.len()));
    }
    let envelope = match decoded {
        Ok(envelope) => envelope,
        Err(error) if error.to_string().len() > 1024 => {
            return Err(format!("{} bytes of complaint", error.to_string().len()));
        }
        Err(_) => return Ok(()),
    };
    let again = match dialect.encode(&envelope) {
        Ok(message) => message,
        // A structured event may hold data that the same event in binary mode cannot.
        Err(
            EncodeError::PayloadKind { .. } | EncodeError::Invalid { field: "content_type", .. },
        ) => {
            return Ok(());
        }
        Err(error) => return Err(format!("understood, but not written: {error}")),
    };
    match dialect.decode(&again) {
        Ok(same) if same == envelope => Ok(()),
        Ok(other) => Err(format!("written as {again:?}\nread as {other:?}\nnot {envelope:?}")),
        Err(error) => Err(format!("written as {again:?}, and not understood: {error}")),
    }
}

fn fuzz(target: &str, check: impl Fn(&[u8]) -> Result<(), String>) {
    let corpus = corpus(target);
    for (name, input) in &corpus {
        if let Err(reason) = guarded(&check, input) {
            panic!("tests/corpus/{target}/{name}: {reason}");
        }
    }
    let seeds: Vec<&Vec<u8>> = corpus.values().collect();
    let seed = setting("CHAPAR_FUZZ_SEED").unwrap_or(1.0) as u64;
    let budget = Duration::from_secs_f64(setting("CHAPAR_FUZZ_SECONDS").unwrap_or(1.5));
    let mut random = Random(seed);
    let mut runs = 0u64;
    let start = Instant::now();
    while start.elapsed() < budget {
        let input = mutate(&mut random, &seeds);
        runs += 1;
        if let Err(reason) = guarded(&check, &input) {
            let name = format!("finding-{seed}-{runs}");
            let file = support::path("corpus").join(target).join(&name);
            fs::write(&file, &input).unwrap();
            panic!("seed {seed}, run {runs}: {reason}\nthe input is saved as {}", file.display());
        }
    }
    println!("{target}: {runs} inputs with seed {seed}");
}

fn guarded(check: &impl Fn(&[u8]) -> Result<(), String>, input: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check(input))).unwrap_or_else(|_| Err("it panicked".into()))
}

fn corpus(target: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = support::path("corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let files = files.map(|file| {
        let file = file.unwrap();
        (file.file_name().to_string_lossy().into_owned(), fs::read(file.path()).unwrap())
    });
    files.collect()
}

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread holds. Constant thread-locals need no allocation of their own.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn count(&self, bytes: isize) {
        let live = LIVE.get() + bytes;
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.count(-(layout.size() as isize));
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
