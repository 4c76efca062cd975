//! A fenced write: a holder that was frozen beyond its lease does no harm, because the store refuses smaller fencing
//! numbers than its last one.
//!
//! `cargo run -p peerlock --example fenced_write`

use std::collections::BTreeMap;

use peerlock::Error;
use peerlock::testing::Network;

/// A store that keeps the largest fencing number of each slot. In a database: `UPDATE … WHERE fencing <= $1`.
#[derive(Default)]
struct Store {
    found: BTreeMap<u32, u64>,
    text: String,
}

impl Store {
    fn write(&mut self, slot: u32, fencing: u64, text: &str) -> Result<(), String> {
        let found = self.found.entry(slot).or_default();
        if fencing < *found {
            return Err(format!("{fencing} is too late: {found} has already written"));
        }
        *found = fencing;
        self.text = text.to_owned();
        Ok(())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let client = Network::new().peer().await?.client();
    let mut store = Store::default();

    let frozen = client.acquire("ledger").await?;
    let (slot, fencing) = (frozen.slot(), frozen.fencing());
    store.write(slot, fencing, "first").expect("it holds the slot");
    drop(frozen); // As if its lease had expired while it was frozen: the holder still has its number.

    let next = client.acquire("ledger").await?;
    store.write(next.slot(), next.fencing(), "second").expect("it holds the slot");

    let refused = store.write(slot, fencing, "first again").expect_err("its lease has expired");
    println!("refused: {refused}");
    assert_eq!(store.text, "second");
    Ok(())
}
