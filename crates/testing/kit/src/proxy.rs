//! A TCP proxy between a client and a gateway, which can cut the connections.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Forwards bytes to a gateway until a test cuts the connections.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    state: Arc<Mutex<State>>,
    _end_on_drop: DropGuard,
}

#[derive(Debug)]
struct State {
    target: String,
    /// Cancelled to cut all current connections.
    cut: CancellationToken,
    connections: usize,
    down: bool,
}

impl Proxy {
    /// The configuration that makes a gateway accept the proxy's address.
    pub const CONFIG: &str = "[server]\nallowed_hosts = [\"127.0.0.1\"]";

    /// Starts a proxy for the gateway at `127.0.0.1:PORT`.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = State {
            target: target.into(),
            cut: CancellationToken::new(),
            connections: 0,
            down: false,
        };
        let (state, end) = (Arc::new(Mutex::new(state)), CancellationToken::new());
        let shared = Arc::clone(&state);
        tokio::spawn(end.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, Arc::clone(&shared)));
            }
        }));
        Self { address, state, _end_on_drop: end.drop_guard() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection, even in the middle of a transfer. New connections are forwarded.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        std::mem::take(&mut state.cut).cancel();
    }

    /// Cuts every connection, and every new one, until [`up`](Self::up).
    pub fn down(&self) {
        self.state.lock().down = true;
        self.cut();
    }

    /// Forwards new connections again.
    pub fn up(&self) {
        self.state.lock().down = false;
    }

    /// Returns how many connections there have been.
    pub fn connections(&self) -> usize {
        self.state.lock().connections
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn pass(mut client: TcpStream, state: Arc<Mutex<State>>) {
    let (target, cut) = {
        let mut state = state.lock();
        if state.down {
            return;
        }
        state.connections += 1;
        (state.target.clone(), state.cut.clone())
    };
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let _ = cut.run_until_cancelled(tokio::io::copy_bidirectional(&mut client, &mut server)).await;
}
