//! A way that connections take through this process, and that can be cut.
//!
//! As where a cable is cut: nobody is told. What is on its way stays there, and goes on once the way is mended.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// In which direction nothing gets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// From those that connect.
    pub there: bool,
    /// To them.
    pub back: bool,
}

/// Connections to a port here are connections to another address. It ends when this is dropped.
pub struct Way {
    shared: Arc<Shared>,
    port: u16,
}

#[derive(Default)]
struct Shared {
    cut: Mutex<Cut>,
    mended: Condvar,
    is_over: AtomicBool,
}

impl Shared {
    /// Waits as long as nothing gets through in a direction; whether the way is there still.
    fn pass(&self, is_cut: fn(&Cut) -> bool) -> bool {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        while is_cut(&cut) && !self.is_over.load(Ordering::Acquire) {
            cut = self.mended.wait(cut).unwrap_or_else(PoisonError::into_inner);
        }
        !self.is_over.load(Ordering::Acquire)
    }
}

impl Way {
    /// Opens a way from a port of the loopback to `target`, which need not listen yet.
    ///
    /// # Errors
    /// Where somebody else listens at the port.
    pub fn open(port: u16, target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).context("open a way")?;
        let port = listener.local_addr()?.port();
        let shared = Arc::<Shared>::default();
        let way = Self { shared: Arc::clone(&shared), port };
        thread::Builder::new().name("way".to_owned()).spawn(move || {
            for comes in listener.incoming() {
                if shared.is_over.load(Ordering::Acquire) {
                    return;
                }
                // Where nobody listens at the target, it is closed.
                if let Ok(comes) = comes
                    && let Ok(goes) = TcpStream::connect_timeout(&target, Duration::from_secs(1))
                {
                    carry(&shared, (&comes, &goes), |cut| cut.there);
                    carry(&shared, (&goes, &comes), |cut| cut.back);
                }
            }
        })?;
        Ok(way)
    }

    /// Where it begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets nothing through in these directions, and all in the others.
    pub fn cut(&self, cut: Cut) {
        *self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner) = cut;
        self.shared.mended.notify_all();
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.cut(Cut::default());
        // It looks whether it is over.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
    }
}

/// Carries bytes from one connection to the other, on a thread of its own, until one of them ends.
fn carry(shared: &Arc<Shared>, (from, to): (&TcpStream, &TcpStream), is_cut: fn(&Cut) -> bool) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    let _ = to.set_nodelay(true);
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if !shared.pass(is_cut) || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // An end is carried as bytes are.
        shared.pass(is_cut);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_while_a_way_is_cut_comes_once_it_is_mended_and_the_other_direction_goes_on() {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let way = Way::open(0, target.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, way.port())).unwrap();
        let (mut server, _) = target.accept().unwrap();
        let mut byte = [0];
        let mut pass = |from: &mut TcpStream, to: &mut TcpStream, sent: u8, limit: Option<u64>| {
            from.write_all(&[sent]).unwrap();
            to.set_read_timeout(limit.map(Duration::from_millis)).unwrap();
            to.read_exact(&mut byte).is_ok() && byte == [sent]
        };
        assert!(pass(&mut client, &mut server, 1, None) && pass(&mut server, &mut client, 2, None));
        way.cut(Cut { there: true, back: false });
        assert!(!pass(&mut client, &mut server, 3, Some(50)));
        assert!(pass(&mut server, &mut client, 4, None));
        way.cut(Cut { there: false, back: true });
        assert!(!pass(&mut server, &mut client, 5, Some(50)));
        server.set_read_timeout(None).unwrap();
        server.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [3], "what was held");
        way.cut(Cut::default());
        client.set_read_timeout(None).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [5]);
        drop(client);
        assert_eq!(server.read(&mut byte).unwrap(), 0, "the end comes, too");
    }
}
