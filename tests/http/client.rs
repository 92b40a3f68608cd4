//! A client that says exactly what it is told to, one connection a request.

use std::collections::HashMap;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// A POST to `/pay` under a key.
pub(crate) fn pay(key: &str, body: &str) -> Ask {
    post("/pay", body).header("Idempotency-Key", key)
}

pub(crate) fn post(path: &str, body: &str) -> Ask {
    Ask {
        method: "POST",
        path: path.to_owned(),
        headers: Vec::new(),
        body: body.to_owned(),
    }
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    fn head(&self, framing: &str) -> String {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{framing}\r\n",
            self.method, self.path
        );
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head + "\r\n"
    }

    /// Sends it and returns the connection.
    pub(crate) async fn begin(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(to).await?;
        let head = self.head(&format!("Content-Length: {}", self.body.len()));
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(self.body.as_bytes()).await?;
        Ok(stream)
    }

    /// Sends it and reads the response; an error if the connection breaks.
    pub(crate) async fn try_send(&self, to: SocketAddr) -> std::io::Result<Reply> {
        read(self.begin(to).await?).await
    }

    pub(crate) async fn send(&self, to: SocketAddr) -> Reply {
        self.try_send(to).await.expect("a response")
    }

    /// Sends the body in chunks without saying how long it is, and stops when the server has answered.
    pub(crate) async fn send_chunked(&self, to: SocketAddr, chunks: usize) -> Reply {
        let mut stream = TcpStream::connect(to).await.expect("connects");
        let head = self.head("Transfer-Encoding: chunked");
        stream.write_all(head.as_bytes()).await.expect("is sent");
        let chunk = format!("{:x}\r\n{}\r\n", self.body.len(), self.body);
        for _ in 0..chunks {
            if stream.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = stream.write_all(b"0\r\n\r\n").await;
        read(stream).await.expect("a response")
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Says whether it is a repetition of the first response.
    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Checks that it is a problem with that status.
    pub(crate) fn assert_problem(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert!(
            self.body.contains(&format!("\"status\":{status}")),
            "{self:?}"
        );
    }
}

/// Reads a response to its end. One that breaks off before is an error.
pub(crate) async fn read(mut stream: TcpStream) -> std::io::Result<Reply> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            // A server that refuses a body may reset the connection behind its answer.
            Err(_) if !bytes.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    parse(&bytes).ok_or_else(|| std::io::Error::other("the response broke off"))
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let body = match headers.get("transfer-encoding").map(String::as_str) {
        Some("chunked") => dechunked(body)?,
        _ => body.to_owned(),
    };
    if let Some(length) = headers.get("content-length")
        && length.parse() != Ok(body.len())
    {
        return None;
    }
    Some(Reply {
        status,
        headers,
        body,
    })
}

fn dechunked(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, behind) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body += behind.get(..length)?;
        rest = behind.get(length + 2..)?;
    }
}
