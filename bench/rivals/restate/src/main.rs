//! Restate in the comparison: the service is in this process, the journal in a `restate-server` on the same machine.
//!
//! Mode: `server`, with the server's defaults. Calls come in through its ingress, over kept connections.

use std::time::Duration;

use contest::{Failure, Place, Removal, System};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use restate_sdk::prelude::*;

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

/// Ended invocations that are listed at a time.
const PAGE: &str = "SELECT id FROM sys_invocation WHERE status = 'completed' LIMIT 5000";

struct Work;

#[service]
impl Work {
    #[handler]
    async fn chain(&self, ctx: Context<'_>, steps: u64) -> Result<u64, HandlerError> {
        let mut x = 0;
        for _ in 0..steps {
            x = ctx
                .run(|| async move { Ok(contest::work(x).await) })
                .await?;
        }
        Ok(x)
    }

    #[handler]
    async fn sleeper(&self, ctx: Context<'_>, n: u64) -> Result<u64, HandlerError> {
        contest::asleep();
        ctx.sleep(DAY).await?;
        Ok(n)
    }
}

struct Restate {
    http: Client<HttpConnector, Full<Bytes>>,
    ingress: String,
    admin: String,
}

impl Restate {
    /// Asks the server for something; its answer.
    async fn ask(
        &self,
        method: Method,
        url: String,
        key: Option<String>,
        body: String,
    ) -> Result<String, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(&url)
            .header("accept", "application/json")
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let answer = self.http.request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        match status.is_success() {
            true => Ok(String::from_utf8_lossy(&body).into_owned()),
            false => Err(format!("{url} was answered with {status}").into()),
        }
    }

    /// Tells the server where the service is.
    async fn announce(&self, port: u16) -> Result<(), Failure> {
        let url = format!("{}/deployments", self.admin);
        let body = format!(r#"{{"uri":"http://127.0.0.1:{port}/","force":true}}"#);
        self.ask(Method::POST, url, None, body).await?;
        Ok(())
    }

    /// Returns the ids of some invocations that have ended.
    async fn ended(&self) -> Result<Vec<String>, Failure> {
        let url = format!("{}/query", self.admin);
        let body = format!(r#"{{"query":"{PAGE}"}}"#);
        let answer = self.ask(Method::POST, url, None, body).await?;
        // An id is the only string of its shape in the answer.
        let words = answer.split('"').filter(|word| word.starts_with("inv_"));
        Ok(words.map(str::to_owned).collect())
    }
}

impl System for Restate {
    async fn open(place: &Place) -> Result<Self, Failure> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", place.port)).await?;
        let endpoint = Endpoint::builder().bind(Work).build();
        tokio::spawn(HttpServer::new(endpoint).serve(listener));
        let restate = Self {
            http: Client::builder(TokioExecutor::new()).build_http(),
            ingress: place.url.clone(),
            admin: place.admin.clone(),
        };
        // It knows already if this process follows one that was killed.
        if !place.resuming {
            restate.announce(place.port).await?;
        }
        Ok(restate)
    }

    async fn chain(&self, key: Option<String>, steps: u64) -> Result<u64, Failure> {
        let url = format!("{}/Work/chain", self.ingress);
        let answer = self.ask(Method::POST, url, key, steps.to_string()).await?;
        Ok(answer.trim().parse()?)
    }

    async fn fall_asleep(&self) -> Result<(), Failure> {
        let url = format!("{}/Work/sleeper/send", self.ingress);
        self.ask(Method::POST, url, None, "0".into()).await?;
        Ok(())
    }

    async fn remove_ended(&self) -> Result<Removal, Failure> {
        loop {
            let page = self.ended().await?;
            if page.is_empty() {
                return Ok(Removal::Done);
            }
            for id in page {
                let url = format!("{}/invocations/{id}/purge", self.admin);
                self.ask(Method::PATCH, url, None, String::new()).await?;
            }
        }
    }
}

fn main() {
    contest::main::<Restate>()
}
