//! Just enough HTTP/1.1 to talk JSON to a server on this machine: no TLS, no redirects, one request per connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The body as it came.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON, or `Null` where it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends one request to `http://host:port/path` and waits up to 60 s for the whole answer.
///
/// Any status is an answer; an error means that nothing, or nothing understandable, came back.
pub fn http(method: &str, url: &str, json: Option<&Value>) -> io::Result<Answer> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| broken("only http:// addresses are spoken here"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let body = json.map(Value::to_string).unwrap_or_default();

    let mut stream = TcpStream::connect(authority)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "{method} /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len(),
    )?;
    read_answer(BufReader::new(stream))
}

fn read_answer(mut stream: impl BufRead) -> io::Result<Answer> {
    let status_line = read_line(&mut stream)?;
    let status = status_line
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| broken("the answer is not HTTP/1.1"))?;

    let mut length = None;
    let mut chunked = false;
    loop {
        let line = read_line(&mut stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length =
                Some(value.parse::<u64>().map_err(|_| broken("content-length is not a number"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        }
    }

    let mut body = Vec::new();
    match length {
        _ if chunked => read_chunks(&mut stream, &mut body)?,
        Some(length) => {
            let got = stream.take(length).read_to_end(&mut body)?;
            if got as u64 != length {
                return Err(broken("the answer ended early"));
            }
        }
        None => {
            stream.read_to_end(&mut body)?;
        }
    }
    Ok(Answer { status, body })
}

fn read_chunks(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(stream)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(|_| broken("a chunk has no size"))?;
        let got = stream.take(size).read_to_end(body)?;
        if got as u64 != size {
            return Err(broken("the answer ended early"));
        }
        read_line(stream)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(broken("the connection closed before an answer"));
    }
    Ok(line.trim_end().to_owned())
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_chunks_is_put_together() {
        let wire = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        let answer = read_answer(wire.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "abcde"));
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        let wire = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        assert!(read_answer(wire.as_bytes()).is_err());
    }
}
