//! Connections between processes: one in each direction between any two, and one of each process to itself.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use crate::frame;

pub enum Received {
    Frame(Vec<u8>),
    Connected,
    Disconnected(usize),
}

const PATIENCE: Duration = Duration::from_secs(5);

pub struct Links {
    key: [u8; 16],
    me: usize,
    out: Vec<Option<TcpStream>>,
    cut: Vec<usize>,
}

/// Listens and returns the port. Events of authenticated connections are sent to `received`.
pub fn listen<T: Send + 'static>(
    address: IpAddr,
    key: [u8; 16],
    received: Sender<T>,
    as_received: impl Fn(Received) -> T + Clone + Send + 'static,
) -> io::Result<u16> {
    let listener = TcpListener::bind((address, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (received, as_received) = (received.clone(), as_received.clone());
            thread::spawn(move || {
                if let Ok((process, stream)) = admit(stream, &key) {
                    let _ = received.send(as_received(Received::Connected));
                    let mut stream = BufReader::new(stream);
                    while let Ok(Some(bytes)) = frame::read(&mut stream) {
                        let _ = received.send(as_received(Received::Frame(bytes)));
                    }
                    let _ = received.send(as_received(Received::Disconnected(process)));
                }
            });
        }
    });
    Ok(port)
}

fn admit(mut stream: TcpStream, key: &[u8; 16]) -> io::Result<(usize, TcpStream)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut hello = [0; 24];
    stream.read_exact(&mut hello)?;
    let (given, number) = hello.split_at(16);
    if given != key {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(None)?;
    let number = number.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    Ok((number as usize, stream))
}

impl Links {
    pub fn to(addresses: &[Option<SocketAddr>], key: [u8; 16], me: usize) -> io::Result<Self> {
        let mut links = Self { key, me, out: Vec::new(), cut: Vec::new() };
        for &address in addresses {
            let link = address.map(|address| links.connect(address)).transpose()?;
            links.out.push(link);
        }
        Ok(links)
    }

    fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.write_all(&self.key)?;
        stream.write_all(&(self.me as u64).to_le_bytes())?;
        Ok(stream)
    }

    /// Sends a frame, which is dropped if the process is dead or cut off.
    pub fn send(&mut self, process: usize, bytes: &[u8]) {
        if self.cut.contains(&process) {
            return;
        }
        if let Some(Some(stream)) = self.out.get_mut(process)
            && frame::write(stream, bytes).is_err()
        {
            self.out[process] = None;
        }
    }

    pub fn moved(&mut self, process: usize, address: SocketAddr) {
        let link = self.connect(address).ok();
        if let Some(Some(old)) = self.out.get_mut(process).map(|slot| std::mem::replace(slot, link)) {
            let _ = old.shutdown(Shutdown::Both);
        }
    }

    pub fn cut(&mut self, processes: Vec<usize>) {
        self.cut = processes;
    }
}
