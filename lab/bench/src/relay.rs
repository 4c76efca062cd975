//! A relay that delays all traffic between processes if `--delay` is given.
//!
//! ```text
//!   A ──► relay's port for B ──reader──► queue ──writer──► B's own port
//!     ◄──────writer────── queue ◄──reader────────────────
//! ```
//!
//! Each direction of a connection has two threads: one stamps data with its due time, the other waits and forwards.
//! Order is kept and bandwidth is unlimited. Threads, because tokio's timers have a resolution of a millisecond.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::prctl::set_timerslack;

use crate::child::{print, unknown};
use crate::server::free_ports;
use crate::system::Failure;
use crate::worker::{Launcher, Worker};
use crate::{Error, clock};

const CHUNK: usize = 64 * 1024;
/// A small stack, since there are hundreds of threads.
const STACK: usize = 64 * 1024;

pub enum Network {
    Direct,
    Relayed(Box<Worker>),
}

impl Network {
    pub async fn relayed(launcher: &Launcher<'_>) -> Result<Self, Error> {
        Ok(Self::Relayed(Box::new(launcher.start(&["relay"]).await?.0)))
    }

    /// Sets the delay of each direction. Data in transit keeps its due time.
    pub async fn delay(&mut self, delay: Duration) -> Result<(), Error> {
        if let Self::Relayed(relay) = self {
            relay.ask(&format!("delay {}", clock::nanos(delay))).await?;
        }
        Ok(())
    }

    /// Returns an address to listen on. A relayed process must know its port before it starts.
    pub fn port(&self) -> Result<SocketAddr, Error> {
        match self {
            Self::Direct => Ok(([127, 0, 0, 1], 0).into()),
            Self::Relayed(_) => Ok(free_ports(1)?[0]),
        }
    }

    pub async fn to(&mut self, address: SocketAddr) -> Result<SocketAddr, Error> {
        match self {
            Self::Direct => Ok(address),
            Self::Relayed(relay) => {
                let answer = relay.ask(&format!("to {address}")).await?;
                let relayed = answer.first().and_then(|address| address.parse().ok());
                relayed.ok_or_else(|| relay.failed(&format!("{answer:?} is not an address")))
            }
        }
    }
}

/// Runs the relay. It executes `delay NANOS`, and `to ADDRESS`, which it answers with its own address.
pub fn main() -> Result<(), Failure> {
    // The kernel wakes sleepers up to 50 µs late by default. Threads inherit this setting.
    set_timerslack(1)?;
    let delay = Arc::new(AtomicU64::new(0));
    print("end")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["delay", nanos] => {
                delay.store(nanos.parse()?, Ordering::Relaxed);
                print("end")?;
            }
            ["to", address] => print(&format!("{}\nend", open(address.parse()?, &delay)?))?,
            _ => return Err(unknown(&line)),
        }
    }
    Ok(())
}

fn open(to: SocketAddr, delay: &Arc<AtomicU64>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, delay) = (listener.local_addr()?, delay.clone());
    spawn(move || {
        for near in listener.incoming().flatten() {
            // If the target does not listen yet, the dialling process retries.
            let Ok(far) = TcpStream::connect(to) else { continue };
            _ = join(near, far, &delay);
        }
    })?;
    Ok(address)
}

fn join(near: TcpStream, far: TcpStream, delay: &Arc<AtomicU64>) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
        let (due, queue) = channel();
        let (source, delay) = (from.try_clone()?, delay.clone());
        spawn(move || stamp(from, &due, &delay))?;
        spawn(move || forward(&queue, to, &source))?;
    }
    Ok(())
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}

fn stamp(mut from: TcpStream, due: &Sender<(u64, Vec<u8>)>, delay: &AtomicU64) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let then = clock::now() + delay.load(Ordering::Relaxed);
        if due.send((then, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn forward(queue: &Receiver<(u64, Vec<u8>)>, mut to: TcpStream, source: &TcpStream) {
    for (then, bytes) in queue {
        thread::sleep(clock::until(then));
        if to.write_all(&bytes).is_err() {
            // The reader has closed: close the writer's side as well.
            _ = source.shutdown(Shutdown::Both);
            return;
        }
    }
    _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(3);

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let delay = Arc::new(AtomicU64::new(clock::nanos(DELAY)));
        let address = open(listener.local_addr().unwrap(), &delay).unwrap();
        let near = TcpStream::connect(address).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn nothing_is_early_in_either_direction() {
        let (near, far) = connection();
        for _ in 0..3 {
            for (mut from, mut to) in [(&near, &far), (&far, &near)] {
                let sent = clock::now();
                from.write_all(b"data").unwrap();
                to.read_exact(&mut [0; 4]).unwrap();
                assert!(clock::now() - sent >= clock::nanos(DELAY));
            }
        }
    }

    #[test]
    fn everything_arrives_in_order_and_then_the_end() {
        let (mut near, mut far) = connection();
        let sent: Vec<u8> = (0..5_000_000u32).map(|number| (number ^ number >> 8 ^ number >> 16) as u8).collect();
        let written = sent.clone();
        let writer = thread::spawn(move || {
            for piece in written.chunks(7_919) {
                near.write_all(piece).unwrap();
            }
            near.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            near.read_to_string(&mut answer).unwrap();
            answer
        });
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).unwrap();
        assert!(arrived == sent, "{} of {} bytes", arrived.len(), sent.len());
        far.write_all(b"thanks").unwrap();
        drop(far);
        assert_eq!(writer.join().unwrap(), "thanks");
    }

    #[test]
    fn writer_notices_a_closed_reader() {
        let (mut near, far) = connection();
        drop(far);
        while near.write_all(&[0; 1024]).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
