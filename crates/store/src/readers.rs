//! The reader threads. Each has its own connection, so reads continue while the writer is busy or
//! blocked.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::Connection;
use sa_core::store::StoreError;
use tokio::sync::{Semaphore, oneshot};

use crate::read::View;
use crate::{Shared, error, open};

type Job = Box<dyn FnOnce(View<'_>) + Send>;

pub(crate) struct Readers {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    /// Bounds the queue. If it is full, callers wait here.
    slots: Semaphore,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

const QUEUE: usize = 256;

impl Readers {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for n in 0..shared.options.readers.max(1) {
            let conn = open::connect_reader(&shared.options)?;
            let (shared, queue) = (shared.clone(), queue.clone());
            let thread = std::thread::Builder::new()
                .name(format!("store-read-{n}"))
                .spawn(move || work(&shared, &queue, &conn));
            threads.push(thread.map_err(|e| error::io("a thread".as_ref(), "start", &e))?);
        }
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            slots: Semaphore::new(QUEUE),
            threads: Mutex::new(threads),
        })
    }

    /// Runs a read on one of the threads, in one snapshot.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        shared: &Shared,
        f: impl FnOnce(View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || error::closed(&shared.options.path);
        let _slot = self.slots.acquire().await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |view| {
            // The caller may have been cancelled.
            if !reply.is_closed() {
                let _ = reply.send(view.snapshot(|| f(view)));
            }
        });
        let jobs = self.jobs.lock().clone();
        jobs.ok_or_else(closed)?.send(job).map_err(|_| closed())?;
        let answer = answer.await.map_err(|_| closed())?;
        answer.inspect_err(|error| shared.file_problems.note(error))
    }

    /// Ends the threads after the queued reads.
    pub(crate) fn close(&self) {
        self.jobs.lock().take();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, queue: &Mutex<mpsc::Receiver<Job>>, conn: &Connection) {
    let view = View { conn, path: &shared.options.path };
    loop {
        let job = queue.lock().recv();
        match job {
            Ok(job) => job(view),
            Err(_) => return,
        }
    }
}
