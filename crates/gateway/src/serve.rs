//! Runs a gateway on a listener until it is stopped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::TryFutureExt as _;
use hyper::StatusCode;
use hyper_util::rt::{TokioIo, TokioTimer};
use sa_vault::bounded;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::assemble::{Gateway, liveness};
use crate::config::TlsFiles;
use crate::connection::{Connection, ConnectionGuard, Peer};
use crate::http;
use crate::metrics::Metrics;
use crate::repoll_on_wake::RepollOnWake;
use sa_http::Ends;
use sa_http::slot::{ConnectionSlots, evicted};

/// The timeout for receiving a request head, and for a TLS handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// The timeout for connections to close during shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The shorter timeout after a second signal.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of bytes that are read from a rejected client.
const MAX_IGNORED: u64 = 64 * 1024;

/// The buffer size of an internal connection.
const WITHIN: usize = 64 * 1024;

/// Serves until `stop` is cancelled, then drains, and returns once all connections are closed.
/// Connections are accepted while calls are still running. Clients then receive an error that the
/// gateway is shutting down, instead of a refused connection.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let app = http::HttpService::new(Arc::clone(&gateway));
    serve_behind(app, gateway, listener, stop).await
}

/// Serves with a custom auth middleware.
pub async fn serve_behind(
    app: http::HttpService,
    gateway: Arc<Gateway>,
    listener: TcpListener,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let unusable = |wrong: Vec<(&str, String)>| {
        let wrong: Vec<String> =
            wrong.into_iter().map(|(key, message)| format!("{key}: {message}")).collect();
        anyhow::anyhow!(wrong.join("; "))
    };
    let tls = gateway.config.tls.as_ref().map(acceptor).transpose().map_err(unusable)?;
    let slots = Arc::clone(&gateway.budgets.connections);
    let ending = async {
        stop.cancelled().await;
        gateway.shut_down().await;
    };
    tokio::join!(accept(app, &gateway, listener, tls, &slots), ending);
    // All slots are free once the last socket is closed, including those of nodes and agents.
    let closed = tokio::time::timeout(CLOSE_TIMEOUT, slots.emptied());
    let in_time = tokio::select! {
        biased;
        closed = closed => closed.is_ok(),
        () = hurried(&gateway) => false,
    };
    if !in_time {
        debug!(left = slots.budget().used(), "some connections did not end in time");
    }
    Ok(())
}

/// Opens an internal connection to the gateway in the same process. It bypasses TCP and TLS, but
/// uses the same auth middleware as other connections.
pub fn from_within(gateway: &Arc<Gateway>, ends: Ends) -> DuplexStream {
    let (inside, outside) = tokio::io::duplex(WITHIN);
    let app = http::HttpService::new(Arc::clone(gateway));
    let timeout = liveness(&gateway.config).dead_after;
    // Without a slot, the connection is not subject to the connection limit.
    let place = ConnectionGuard::new(None, Arc::clone(&gateway.metrics), timeout);
    let (metrics, closing) = (Arc::clone(&gateway.metrics), gateway.closing.clone());
    tokio::spawn(RepollOnWake::new(async move {
        connection(place.with(outside), ends, app, &metrics, closing).await;
    }));
    inside
}

/// Resolves shortly after a quick shutdown is requested. The delay allows cancelled calls to
/// receive their errors.
async fn hurried(gateway: &Gateway) {
    gateway.stop_now.cancelled().await;
    tokio::time::sleep(HURRIED_TIMEOUT).await;
}

/// Accepts connections until `closing` is cancelled.
async fn accept(
    app: http::HttpService,
    gateway: &Gateway,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    slots: &ConnectionSlots,
) {
    let timeout = liveness(&gateway.config).dead_after;
    let mut failures = 0_u32;
    loop {
        let (stream, remote) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => {
                    failures = 0;
                    accepted
                }
                // The process is out of descriptors, or the peer has already disconnected. The
                // listener itself still works.
                Err(error) => {
                    if is_out_of_descriptors(&error) {
                        gateway.metrics.refused("http", "no_descriptors");
                    }
                    // Logged about once a minute, because the error repeats until connections
                    // close.
                    if failures.is_multiple_of(1_200) {
                        warn!(%error, "cannot accept a connection; new connections wait until this succeeds");
                    }
                    failures = failures.wrapping_add(1);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = gateway.closing.cancelled() => return,
        };
        let Some(slot) = slots.accept() else {
            gateway.metrics.refused("http", "too_many_connections");
            continue;
        };
        let place = ConnectionGuard::new(Some(slot), Arc::clone(&gateway.metrics), timeout);
        // Disables Nagle's algorithm. Small frames would wait 40 ms for the peer's delayed
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let Ok(local) = stream.local_addr() else { continue };
        let ends = Ends { local, remote, tls: tls.is_some() };
        let (app, metrics, tls) = (app.clone(), Arc::clone(&gateway.metrics), tls.clone());
        let closing = gateway.closing.clone();
        tokio::spawn(RepollOnWake::new(async move {
            match tls {
                Some(acceptor) => {
                    if let Some(stream) = handshake(acceptor, stream, &metrics).await {
                        connection(place.with(stream), ends, app, &metrics, closing).await;
                    }
                }
                None => connection(place.with(stream), ends, app, &metrics, closing).await,
            }
        }));
    }
}

/// Reports whether the process or the system has no file descriptor left.
fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|error| matches!(error, Errno::MFILE | Errno::NFILE))
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    metrics: &Metrics,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let accepted = async {
        let mut first = [0];
        // Every HTTP request starts with an uppercase letter, and no TLS handshake does.
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            tell_to_encrypt(stream).await;
            return Err(std::io::Error::other("the client does not use TLS"));
        }
        acceptor.accept(stream).await
    };
    match tokio::time::timeout(HEAD_TIMEOUT, accepted).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            metrics.refused("tls", "handshake");
            debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            metrics.refused("tls", "slow_handshake");
            None
        }
    }
}

/// Sends an error to a client that uses plain HTTP on the TLS port. Also reads the client's data:
/// closing a socket with unread data would discard the error.
async fn tell_to_encrypt(mut stream: TcpStream) {
    let told = async {
        stream.write_all(not_encrypted().as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(MAX_IGNORED), &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(HURRIED_TIMEOUT, told).await;
}

fn not_encrypted() -> String {
    let problem = http::Problem::new(
        400,
        "https_required",
        "this port requires HTTPS, but the request used plain HTTP",
    )
    .hint("use https:// instead of http://");
    let body = sa_text::json::to_json(&problem);
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn connection(
    stream: Connection<impl AsyncRead + AsyncWrite + Peer + Unpin + Send + 'static>,
    ends: Ends,
    app: http::HttpService,
    metrics: &Metrics,
    closing: CancellationToken,
) {
    // Whether there has been a request. An idle kept-alive connection is not a slow client.
    let used = Arc::new(AtomicBool::new(false));
    let uses = Arc::clone(&used);
    let (agreed, slot) = (stream.agreed(), stream.slot());
    let own = slot.clone();
    let service = hyper::service::service_fn(move |request| {
        uses.store(true, Ordering::Relaxed);
        let agreed = Arc::clone(&agreed);
        app.clone().answer(ends, slot.clone(), request).inspect_ok(move |response| {
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                agreed.store(true, Ordering::Relaxed);
            }
        })
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 * 1024)
        .writev(false)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = evicted(own) => {
            metrics.refused("http", "too_many_connections");
            debug!(remote = %ends.remote, "closed a connection without a token to free a slot for a newer one");
            return;
        }
        () = closing.cancelled() => {
            // Finishes the current request and accepts no further ones.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() && !used.load(Ordering::Relaxed) {
            metrics.refused("http", "slow_head");
        } else if error.is_parse() {
            metrics.refused("http", "malformed");
        }
        debug!(%error, remote = %ends.remote, "connection ended");
    }
}

/// Checks the certificate and key. Returns each error with the configuration key of the file. This
/// runs before the gateway reports that it is ready.
pub fn check_tls(files: &TlsFiles) -> Vec<(&'static str, String)> {
    acceptor(files).err().unwrap_or_default()
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Vec<(&'static str, String)>> {
    use rustls_pki_types::pem::{Error, PemObject as _};
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    let (cert, key) = (files.cert.display(), files.key.display());
    let unreadable = |error: Error, holds_none: String| match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => holds_none,
        error => error.to_string(),
    };
    let read = |path: &Path| bounded::bytes_of_file(path, bounded::PEM).map_err(Error::Io);
    let certificates = read(&files.cert)
        .and_then(|pem| CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>())
        .and_then(|found| if found.is_empty() { Err(Error::NoItemsFound) } else { Ok(found) })
        .map_err(|error| {
            let none = "it contains no certificate (PEM, with a BEGIN CERTIFICATE line)".to_owned();
            ("server.tls_cert", format!("{cert} cannot be used: {}", unreadable(error, none)))
        });
    let private =
        read(&files.key).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem)).map_err(|error| {
            let none = "it contains no private key (PEM, with a BEGIN PRIVATE KEY line)".to_owned();
            ("server.tls_key", format!("{key} cannot be used: {}", unreadable(error, none)))
        });
    let (certificates, private) = match (certificates, private) {
        (Ok(certificates), Ok(private)) => (certificates, private),
        (certificates, private) => {
            return Err(certificates.err().into_iter().chain(private.err()).collect());
        }
    };
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, private).map_err(|error| {
            let message = format!(
                "{key} is not the private key of the certificate in {cert}: {error}; configure two files that belong \
                 together"
            );
            vec![("server.tls_key", message)]
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
