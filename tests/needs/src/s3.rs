//! A server of S3 on loopback.

use std::{io, net::SocketAddr, path::Path};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

/// A server that ends when it is dropped; its buckets are the folders in one.
#[derive(Debug)]
pub struct S3Server {
    task: AbortHandle,
    address: SocketAddr,
}

impl S3Server {
    /// Serves `root` at `address` to who has this access key and its secret.
    ///
    /// # Errors
    /// The address cannot be bound, or the folder not be used.
    pub async fn start(
        root: &Path,
        address: SocketAddr,
        (key, secret): (&str, &str),
    ) -> io::Result<Self> {
        let files =
            FileSystem::new(root).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(key, secret));
        let service = service.build().into_shared();
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(async move {
            // Its connections end with it.
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                connections.spawn(async move {
                    let http = Builder::new(TokioExecutor::new());
                    // Errors of a connection are the client's to tell.
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Ok(Self {
            task: serving.abort_handle(),
            address,
        })
    }

    /// The address at which the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
