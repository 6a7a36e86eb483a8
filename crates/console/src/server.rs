//! The HTTP server.
//!
//! What must stay true: a client without a token learns only that this is a console. A request is
//! small and has no body. Every connection has a deadline.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
        REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::{net::TcpListener, time::timeout};

use crate::{
    access::Access,
    api::{self, Refused},
    connections::{Connections, Trusted},
    watch::Watched,
};

/// Most connections at once.
const CONNECTIONS: usize = 128;
/// How long one may take to send the head of a request, or be idle.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection may last; browsers then make another.
const CONNECTION: Duration = Duration::from_mins(10);
/// Most bytes of the head of a request.
const HEAD: usize = 16 << 10;
/// Most headers of a request.
const HEADERS: usize = 64;

const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// The files of the page.
const FILES: [(&str, &str, &str); 6] = [
    ("/", HTML, include_str!("../web/console.html")),
    ("/console.css", CSS, include_str!("../web/console.css")),
    ("/console.js", SCRIPT, include_str!("../web/console.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../web/icon.svg")),
    ("/uplot/uPlot.min.css", CSS, include_str!("../web/uplot/uPlot.min.css")),
    ("/uplot/uPlot.iife.min.js", SCRIPT, include_str!("../web/uplot/uPlot.iife.min.js")),
];

/// What a stranger sees.
const STRANGER: &str = include_str!("../web/stranger.html");
/// What a browser sees that has just got its cookie. It leads on by itself: a browser that came
/// from a page elsewhere sends the cookie only with a request that this page makes.
const WELCOME: &str = include_str!("../web/welcome.html");

/// What is served.
pub(crate) struct Served {
    pub(crate) access: Access,
    pub(crate) volumes: Vec<Arc<Watched>>,
    pub(crate) version: String,
}

/// Answers whoever connects, until the task is ended.
pub(crate) async fn accept(listener: TcpListener, served: Arc<Served>) {
    let connections = Arc::new(Connections::new(CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, for instance.
                tracing::debug!(%error, "a connection to the console was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let trusted = Trusted::new(AtomicBool::new(false));
        let number = connections.admit(Arc::clone(&trusted));
        let (served, connections_of_task) = (Arc::clone(&served), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let answer = served.answer(&request, &trusted);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(TIMEOUT)
                .max_buf_size(HEAD)
                .max_headers(HEADERS)
                .serve_connection(TokioIo::new(stream), answer);
            // Who asks may close the connection at any time.
            let _ = timeout(CONNECTION, connection).await;
            connections_of_task.remove(number);
        });
        connections.serve(number, task.abort_handle());
    }
}

impl Served {
    fn answer(&self, request: &Request<Incoming>, trusted: &AtomicBool) -> Response<String> {
        let mut answer = self.choose(request, trusted);
        let headers = answer.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    fn choose(&self, request: &Request<Incoming>, trusted: &AtomicBool) -> Response<String> {
        let path = request.uri().path();
        let api = path.starts_with("/api/");
        let refuse = |status, text: &str| if api { error(status, text) } else { plain(status, text) };
        if !self.is_for_this(request) {
            return refuse(
                StatusCode::MISDIRECTED_REQUEST,
                "this console does not go by that name; sluice console --host NAME gives it one",
            );
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, "the console only reads: GET and HEAD");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        if !request.body().is_end_stream() {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body");
        }
        if path == "/"
            && let Some(given) = request.uri().query().and_then(|query| query.strip_prefix("token="))
        {
            return self.log_in(given, request);
        }
        let known = !is_from_elsewhere(request) && self.access.has_cookie(request.headers())
            || api && self.access.has_bearer(request.headers());
        if !known {
            return stranger(api);
        }
        trusted.store(true, Ordering::Relaxed);
        if api {
            return self.api(path, request.uri().query());
        }
        match FILES.iter().find(|(known, ..)| *known == path) {
            Some((_, kind, text)) => whole(StatusCode::OK, kind, (*text).to_owned()),
            None => plain(StatusCode::NOT_FOUND, "there is no such page; the console is at /"),
        }
    }

    /// Whether its one Host, and the name in its address if it has one, are this console's.
    fn is_for_this(&self, request: &Request<Incoming>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let own = |host: &str| self.access.is_own_host(host);
        host.to_str().is_ok_and(own) && request.uri().authority().is_none_or(|name| own(name.as_str()))
    }

    fn log_in(&self, given: &str, request: &Request<Incoming>) -> Response<String> {
        // A program that only looks at the address must not use the token up.
        if request.method() == Method::HEAD {
            return stranger(false);
        }
        let cookie = self.access.log_in(given).and_then(|cookie| HeaderValue::from_str(&cookie).ok());
        let Some(cookie) = cookie else {
            // Somebody who is in already has reloaded the page.
            let known = self.access.has_cookie(request.headers());
            return if known { whole(StatusCode::OK, HTML, WELCOME.into()) } else { stranger(false) };
        };
        let mut answer = whole(StatusCode::OK, HTML, WELCOME.into());
        answer.headers_mut().insert(SET_COOKIE, cookie);
        answer
    }

    fn api(&self, path: &str, query: Option<&str>) -> Response<String> {
        let question = match api::question(path, query) {
            Ok(question) => question,
            Err(Refused::Unknown) => return error(StatusCode::NOT_FOUND, "the API has no such path"),
            Err(Refused::Wrong(text)) => return error(StatusCode::BAD_REQUEST, text),
        };
        match api::answer(question, &self.volumes, &self.version) {
            Some(answer) => whole(StatusCode::OK, JSON, answer.to_string()),
            None => error(StatusCode::NOT_FOUND, "there is no such volume; /api/v1/overview lists them"),
        }
    }
}

/// Whether a page of another origin makes the browser ask, other than by a link that somebody
/// follows. It could not read the answer; it does not get one either.
fn is_from_elsewhere(request: &Request<Incoming>) -> bool {
    let says = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    matches!(says("sec-fetch-site"), Some(b"cross-site" | b"same-site"))
        && says("sec-fetch-dest") != Some(b"document")
}

fn stranger(api: bool) -> Response<String> {
    let mut answer = if api {
        error(StatusCode::UNAUTHORIZED, "send the token of the API: Authorization: Bearer TOKEN")
    } else {
        whole(StatusCode::UNAUTHORIZED, HTML, STRANGER.into())
    };
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

fn error(status: StatusCode, text: &str) -> Response<String> {
    whole(status, JSON, json!({ "error": text }).to_string())
}

fn plain(status: StatusCode, text: &str) -> Response<String> {
    whole(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn whole(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
