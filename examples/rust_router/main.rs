//! A KV-aware router that knows no tokenizer: it asks `mmroute serve` for block hashes, and sends each
//! chat to the worker that got most of its prompt before. The standard library is all it needs; a
//! real router would take its HTTP and JSON from crates.
//!
//!     rustc --edition 2021 -O examples/rust_router/main.rs -o /tmp/rust_router
//!     /tmp/rust_router 127.0.0.1:9000 127.0.0.1:8000 16 10.0.0.1:8000 10.0.0.2:8000
//!
//! The arguments are the address to listen on, that of mmroute serve, the workers' block size, and
//! the workers.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MAX_BLOCKS: usize = 1 << 20; // blocks that are remembered; about 100 bytes each
const MAX_BODY: usize = 64 << 20;
/// Headers of a client's connection to this router, which are not passed on to the worker.
const OF_CONNECTION: [&str; 6] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "transfer-encoding",
];

/// Remembers to which worker the prompts went.
///
/// A block hash covers all blocks before it. So the worker that got the deepest known block of a
/// prompt got all of the prompt up to there.
struct Router {
    owners: HashMap<String, usize>, // block hash -> the worker that got it last
    order: VecDeque<String>,        // hashes in the order in which they came, to forget the oldest
    load: Vec<(usize, usize)>,      // requests that each worker has now, and that it ever got
}

impl Router {
    /// The worker for a prompt, and how many of its blocks went there before.
    fn pick(&mut self, hashes: &[String]) -> (usize, usize) {
        let idlest = (0..self.load.len())
            .min_by_key(|&worker| self.load[worker])
            .unwrap();
        let deepest = hashes
            .iter()
            .rposition(|hash| self.owners.contains_key(hash));
        let (worker, known) = match deepest {
            // A short common beginning, such as a system prompt, is no reason to crowd one worker.
            Some(at) if 2 * (at + 1) >= hashes.len() => (self.owners[&hashes[at]], at + 1),
            _ => (idlest, 0),
        };
        for hash in hashes {
            if self.owners.insert(hash.clone(), worker).is_none() {
                self.order.push_back(hash.clone());
            }
        }
        while self.order.len() > MAX_BLOCKS {
            self.owners.remove(&self.order.pop_front().unwrap());
        }
        self.load[worker].0 += 1;
        self.load[worker].1 += 1;
        (worker, known)
    }
}

/// The head of a message, without its empty line, and its body of `Content-Length` bytes.
fn read_message(stream: &mut BufReader<TcpStream>) -> io::Result<(Vec<String>, Vec<u8>)> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let length = header(&head, "content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    if length > MAX_BODY {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the body is too large",
        ));
    }
    if header(&head, "expect").is_some() {
        // The client waits for this before it sends its body.
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

fn header<'a>(head: &'a [String], name: &str) -> Option<&'a str> {
    let named = head.iter().skip(1).filter_map(|line| line.split_once(':'));
    named
        .into_iter()
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// The headers that a worker gets from a client, such as its API key.
fn passed_on(head: &[String]) -> String {
    let named = |line: &&String| {
        let name = line.split(':').next().unwrap_or("").to_ascii_lowercase();
        !OF_CONNECTION.contains(&name.as_str())
    };
    let lines = head.iter().skip(1).filter(named);
    lines.map(|line| format!("{line}\r\n")).collect()
}

fn post(address: &str, path: &str, headers: &str, body: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)?;
    Ok(stream)
}

/// The texts in the list that is the member `key` of a JSON object. They must need no escapes.
fn texts_of_member(json: &str, key: &str) -> Option<Vec<String>> {
    let (mut depth, mut text_from, mut escaped) = (0, None, false);
    let quoted = format!("\"{key}\":");
    for (at, byte) in json.bytes().enumerate() {
        match (text_from, byte) {
            (Some(_), b'\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(from), b'"') if !escaped => {
                text_from = None;
                if depth == 1 && json[from..].starts_with(&quoted) {
                    let list = json[from + quoted.len()..].trim_start().strip_prefix('[')?;
                    let list = &list[..list.find(']')?];
                    return Some(
                        list.split('"')
                            .skip(1)
                            .step_by(2)
                            .map(str::to_owned)
                            .collect(),
                    );
                }
            }
            (Some(_), _) => {}
            (None, b'"') => text_from = Some(at),
            (None, b'{' | b'[') => depth += 1,
            (None, b'}' | b']') => depth -= 1,
            (None, _) => {}
        }
        escaped = false;
    }
    None
}

/// Asks mmroute. Where there is no exact answer, the error says why, and any worker will do.
fn block_hashes(render: &str, size: &str, body: &[u8]) -> Result<Vec<String>, String> {
    let path = format!("/v1/chat/completions/render?block_size={size}");
    let headers = "Content-Type: application/json\r\n";
    let answered = post(render, &path, headers, body).and_then(|stream| {
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        read_message(&mut BufReader::new(stream))
    });
    let (head, answer) = answered.map_err(|error| error.to_string())?;
    let status = head.first().map(String::as_str).unwrap_or("no answer");
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!(
            "{status} {}",
            header(&head, "x-mmroute-reason").unwrap_or("")
        ));
    }
    let json = String::from_utf8(answer).map_err(|error| error.to_string())?;
    texts_of_member(&json, "block_hashes").ok_or("an answer without block_hashes".to_owned())
}

fn refuse(client: &mut TcpStream, status: &str) -> io::Result<()> {
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    // A connection that is closed with unread bytes is reset, and the client loses the answer.
    client.shutdown(Shutdown::Write)?;
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    io::copy(&mut client.take(MAX_BODY as u64), &mut io::sink())?;
    Ok(())
}

fn serve(client: TcpStream, fleet: &Fleet) -> io::Result<()> {
    let mut stream = BufReader::new(client);
    let (head, body) = read_message(&mut stream)?;
    let mut client = stream.into_inner();
    if head.first().map(String::as_str) != Some("POST /v1/chat/completions HTTP/1.1") {
        return refuse(&mut client, "404 Not Found");
    }
    if header(&head, "content-length").is_none() {
        return refuse(&mut client, "411 Length Required"); // it reads no body in chunks
    }
    let (hashes, reason) = match block_hashes(&fleet.render, &fleet.block_size, &body) {
        Ok(hashes) => (hashes, String::new()),
        Err(reason) => (Vec::new(), reason),
    };
    let (worker, known) = fleet.router.lock().unwrap().pick(&hashes);
    let name = &fleet.workers[worker];
    eprintln!("{name}: {known} of {} blocks known {reason}", hashes.len());
    // The answer is passed on as it comes, until the worker closes the connection.
    let passed = match post(name, "/v1/chat/completions", &passed_on(&head), &body) {
        Ok(mut answer) => io::copy(&mut answer, &mut client).map(|_| ()),
        Err(error) => {
            eprintln!("{name}: {error}");
            refuse(&mut client, "502 Bad Gateway")
        }
    };
    fleet.router.lock().unwrap().load[worker].0 -= 1;
    passed
}

struct Fleet {
    router: Mutex<Router>,
    render: String,
    block_size: String,
    workers: Vec<String>,
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| {
        arguments
            .next()
            .unwrap_or_else(|| panic!("{what} is missing"))
    };
    let listener = TcpListener::bind(next("the address to listen on"))?;
    let (render, block_size) = (next("the address of mmroute serve"), next("the block size"));
    let workers: Vec<String> = std::iter::once(next("a worker")).chain(arguments).collect();
    let router = Router {
        owners: HashMap::new(),
        order: VecDeque::new(),
        load: vec![(0, 0); workers.len()],
    };
    let fleet = Arc::new(Fleet {
        router: Mutex::new(router),
        render,
        block_size,
        workers,
    });
    eprintln!("listening on {}", listener.local_addr()?);
    for client in listener.incoming() {
        let (fleet, client) = (Arc::clone(&fleet), client?);
        std::thread::spawn(move || {
            if let Err(error) = serve(client, &fleet) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}
