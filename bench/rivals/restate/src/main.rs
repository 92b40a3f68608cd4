//! Restate in the comparison: the service is in this process, the journal in a `restate-server` on the same machine.
//!
//! Mode: `server`, with the server's defaults. Calls come in through its ingress, by the SDK's own client.

use std::time::Duration;

use contest::{Failure, Place, Removal, System};
use restate_sdk::ingress::ReqwestClient;
use restate_sdk::prelude::*;

/// A day.
const DAY: Duration = Duration::from_secs(86_400);

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
    client: WorkIngressClient<reqwest::Client>,
    admin: String,
    http: reqwest::Client,
}

/// Tells the server where the service is.
async fn announce(http: &reqwest::Client, place: &Place) -> Result<(), Failure> {
    let body = format!(
        r#"{{"uri":"http://127.0.0.1:{}/","force":true}}"#,
        place.port
    );
    let request = http
        .post(format!("{}/deployments", place.admin))
        .header("content-type", "application/json")
        .body(body);
    let answer = request.send().await?;
    match answer.status().is_success() {
        true => Ok(()),
        false => Err(format!("the server did not take the service: {}", answer.status()).into()),
    }
}

impl System for Restate {
    async fn open(place: &Place) -> Result<Self, Failure> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", place.port)).await?;
        let endpoint = Endpoint::builder().bind(Work).build();
        tokio::spawn(HttpServer::new(endpoint).serve(listener));
        let http = reqwest::Client::new();
        // It knows already if this process follows one that was killed.
        if !place.resuming {
            announce(&http, place).await?;
        }
        let client = ReqwestClient::connect(place.url.parse()?)?;
        Ok(Self {
            client: WorkIngressClient::from_client(client),
            admin: place.admin.clone(),
            http,
        })
    }

    async fn chain(&self, key: Option<String>, steps: u64) -> Result<u64, Failure> {
        let mut call = self.client.chain(steps);
        if let Some(key) = key {
            call = call.idempotency_key(key);
        }
        Ok(call.call().await?.into_body()?)
    }

    async fn fall_asleep(&self) -> Result<(), Failure> {
        self.client.sleeper(0).send().await?;
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
                let answer = self.http.patch(url).send().await?;
                if !answer.status().is_success() {
                    return Err(format!("a purge was refused: {}", answer.status()).into());
                }
            }
        }
    }
}

impl Restate {
    /// Returns the ids of some invocations that have ended.
    async fn ended(&self) -> Result<Vec<String>, Failure> {
        let query = "SELECT id FROM sys_invocation WHERE status = 'completed' LIMIT 5000";
        let request = self
            .http
            .post(format!("{}/query", self.admin))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(format!(r#"{{"query":"{query}"}}"#));
        let answer = request.send().await?.error_for_status()?.text().await?;
        // An id is the only string of its shape in the answer.
        let words = answer.split('"').filter(|word| word.starts_with("inv_"));
        Ok(words.map(str::to_owned).collect())
    }
}

fn main() {
    contest::main::<Restate>()
}
