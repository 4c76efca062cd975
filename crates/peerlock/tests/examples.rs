//! Runs the examples.
#![allow(clippy::expect_used, reason = "an example may fail loudly")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[path = "../examples/fenced_write.rs"]
mod fenced_write;
#[path = "../examples/lock.rs"]
mod lock;
#[path = "../examples/lost.rs"]
mod lost;
#[path = "../examples/worker_pool.rs"]
mod worker_pool;

const PATIENCE: Duration = Duration::from_secs(120);

type Example = fn() -> Result<(), String>;

#[test]
fn examples_run_to_their_end() {
    let examples: [(&str, Example); 4] = [
        ("lock", || lock::main().map_err(|error| error.to_string())),
        ("worker_pool", || worker_pool::main().map_err(|error| error.to_string())),
        ("fenced_write", || fenced_write::main().map_err(|error| error.to_string())),
        ("lost", || lost::main().map_err(|error| error.to_string())),
    ];
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).expect("the directory").count();
    assert_eq!(files, examples.len(), "each example is run");
    for (name, example) in examples {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || _ = done.send(example()));
        let ended = is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name} panicked or does not end"));
        assert_eq!(ended, Ok(()), "{name}");
    }
}
