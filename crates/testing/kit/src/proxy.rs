//! A network between a client and a gateway that can be cut.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Passes bytes on to a gateway, until it is told to cut the connections.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    state: Arc<Mutex<State>>,
    _end_on_drop: DropGuard,
}

#[derive(Debug)]
struct State {
    target: String,
    /// Cancelled to cut all connections that there are.
    cut: CancellationToken,
    connections: usize,
    down: bool,
}

impl Proxy {
    /// What a gateway's configuration needs, so that it answers to the proxy's address.
    pub const CONFIG: &str = "[server]\nallowed_hosts = [\"127.0.0.1\"]";

    /// A proxy for the gateway at `127.0.0.1:PORT`.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = State { target: target.into(), cut: CancellationToken::new(), connections: 0, down: false };
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

    /// Cuts every connection, in the middle of whatever is on its way. New ones are passed on.
    pub fn cut(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.cut).cancel();
    }

    /// Cuts every connection, and every new one, until [`up`](Self::up).
    pub fn down(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).down = true;
        self.cut();
    }

    /// Passes new connections on again.
    pub fn up(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).down = false;
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).connections
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn pass(mut client: TcpStream, state: Arc<Mutex<State>>) {
    let (target, cut) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
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
