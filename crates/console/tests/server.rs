//! A console on volumes in memory, asked over its socket: who is let in, what is refused, what is
//! shown.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use sluice_console::{Config, Console, Opened, Volume};
use sluice_meta::{
    FSCK_REPORT, GC_REPORT, Interrupt, Meta, Options,
    engine::{Commit, Engine, Write as Change},
    mem::MemEngine,
    op::At,
    ops::create::Create,
    schema::{Member, Quota, QuotaKey, Row, Session, SessionInfo, VolumeFormat},
};
use sluice_testkit::wait;
use sluice_types::{Caller, Clock, FileType, Ino, Name, SystemClock};

/// How long anything may take.
const TIMEOUT: Duration = Duration::from_mins(1);
const TOKEN: &str = "the-token-of-the-api";

/// Settings with a secret wherever one may be.
const SECRETS: &str = r#"{"Name":"vault","UUID":"u","Storage":"s3","Bucket":"https://hush1:hush2@s3.example.com/b?x=hush3",
    "AccessKey":"hush4","SecretKey":"hush5","SessionToken":"hush6","EncryptKey":"hush7","EncryptAlgo":"aes256gcm-rsa",
    "BlockSize":4096,"Capacity":1000000,"TrashDays":1,"MetaVersion":1,"DirStats":true,"EnableACL":false,"Other":"hush8"}"#;

fn volume_in(engine: &Arc<MemEngine>) -> Volume {
    let engine = Arc::clone(engine) as Arc<dyn Engine>;
    let open = move || {
        let options = Options { read_only: true, timeout: Duration::from_secs(1), ..Options::default() };
        let meta = Meta::open(Arc::clone(&engine), options).map_err(|error| error.to_string())?;
        Ok(Opened { engine: Arc::clone(&engine), meta })
    };
    Volume { url: "mem://".into(), open: Box::new(open) }
}

fn formatted() -> Arc<MemEngine> {
    let engine = Arc::new(MemEngine::new());
    let format = VolumeFormat::parse(SECRETS.as_bytes()).expect("settings");
    Meta::format(engine.as_ref(), &format, SystemClock.now()).expect("formatted");
    engine
}

/// Writes records behind everybody's back.
fn put(engine: &MemEngine, rows: Vec<Row>) {
    let writes = rows.into_iter().map(Change::Put).collect();
    engine.commit(&Commit { writes, ..Commit::default() }).expect("written");
}

fn session(sid: u64, expires_in: i64, info: &SessionInfo) -> Row {
    let expire = SystemClock.now().sec + expires_in;
    Row::Session(sid, Session { expire, info: Some(info.to_json()) })
}

/// A console, and the one-time tokens that it handed out.
struct Running {
    console: Console,
    tokens: Arc<Mutex<Vec<String>>>,
}

fn start(volumes: Vec<Volume>) -> Running {
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let on_token = {
        let tokens = Arc::clone(&tokens);
        Box::new(move |token: &str| tokens.lock().expect("tokens").push(token.to_owned()))
    };
    let config = Config {
        hosts: vec!["console.example.com".into()],
        api_token: Some(TOKEN.into()),
        survey: Duration::from_millis(50),
        count: Duration::from_millis(50),
        scrape: Duration::from_millis(50),
        ..Config::new("0", "here".into(), on_token)
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let console = Console::start(listener, volumes, config).expect("started");
    Running { console, tokens }
}

/// An answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.console.address()
    }

    /// Sends bytes on a connection of its own, and reads until the console closes it.
    fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address()).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        // What is refused may be answered before all of it was sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        let lines = headers.iter().fold(String::new(), |lines, header| lines + header + "\r\n");
        self.raw(format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n").as_bytes())
    }

    fn get(&self, path: &str, headers: &[&str]) -> Answer {
        self.ask("GET", path, &[&["Host: 127.0.0.1"], headers].concat())
    }

    fn api(&self, path: &str) -> Answer {
        self.get(&format!("/api/v1/{path}"), &[&format!("Authorization: Bearer {TOKEN}")])
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.api(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("JSON")
    }

    /// Waits until an answer of the API is as wanted.
    fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = self.json(path);
        let is_wanted = || {
            found = self.json(path);
            wanted(&found)
        };
        let done = wait::until(path, TIMEOUT, is_wanted);
        assert!(done.is_ok(), "{path}: {found:#}");
        found
    }

    /// The header of a browser that has logged in.
    fn cookie(&self) -> String {
        let answer = self.get(&format!("/?token={}", self.console.login_token()), &[]);
        assert_eq!(answer.status, 200);
        let line = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        format!("Cookie: {}", line.split(';').next().expect("a pair"))
    }
}

const PATHS: [&str; 9] = [
    "/",
    "/console.js",
    "/console.css",
    "/icon.svg",
    "/uplot/uPlot.iife.min.js",
    "/uplot/uPlot.min.css",
    "/api/v1/overview",
    "/api/v1/volumes/1",
    "/api/v1/volumes/1/rates",
];

#[test]
fn a_stranger_learns_nothing() {
    let running = start(vec![volume_in(&formatted())]);
    running.until("overview", |overview| overview["volumes"][0]["name"] == "vault");
    for path in PATHS.into_iter().chain(["/nothing", "/api/v1/nothing", "/api/", "/?token=", "/?token=0"]) {
        for header in
            ["A: b", "Authorization: Bearer wrong", "Authorization: Basic x", "Cookie: sluice_console=1"]
        {
            let answer = running.get(path, &[header]);
            assert_eq!(answer.status, 401, "{path} {header}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
            assert!(!answer.body.contains("vault") && answer.body.len() < 800, "{}", answer.body);
        }
    }
    assert!(running.tokens.lock().expect("tokens").is_empty(), "the one-time token was not used");
}

#[test]
fn a_name_that_is_not_its_own_is_refused_before_any_token_is_looked_at() {
    let running = start(vec![volume_in(&formatted())]);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let login = format!("/?token={}", running.console.login_token());
    for path in ["/api/v1/overview", "/", &login] {
        for hosts in [
            &["Host: evil.example.com"][..],
            &["Host: evil.example.com:9567"],
            &["Host: 127.0.0.1.evil.example.com"],
            &["Host: 127.0.0.1", "Host: evil.example.com"],
            &["Host: "],
            &[],
        ] {
            let answer = running.ask("GET", path, &[hosts, &[&bearer]].concat());
            assert!(matches!(answer.status, 400 | 421), "{hosts:?}: {}", answer.status);
        }
        let whole = format!("http://evil.example.com{path}");
        assert_eq!(running.ask("GET", &whole, &["Host: localhost", &bearer]).status, 421);
    }
    for host in ["localhost:1", "127.0.0.1", "[::1]:7", "CONSOLE.example.com", "192.0.2.1:80"] {
        let answer = running.ask("GET", "/api/v1/overview", &[&format!("Host: {host}"), &bearer]);
        assert_eq!(answer.status, 200, "{host}");
    }
    assert!(running.tokens.lock().expect("tokens").is_empty(), "the one-time token was not used");
}

#[test]
fn the_one_time_token_becomes_a_cookie() {
    let running = start(vec![volume_in(&formatted())]);
    let token = running.console.login_token();
    let path = format!("/?token={token}");
    assert_eq!(running.ask("HEAD", &path, &["Host: localhost"]).status, 401, "it is not used up by a look");
    let answer = running.get(&path, &[]);
    assert_eq!(answer.status, 200);
    let line =
        answer.head.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie").to_owned();
    for part in ["; path=/", "; httponly", "; samesite=strict"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!answer.body.contains(&token) && answer.body.contains("url=/\""), "{}", answer.body);
    let cookie = format!("Cookie: {}", line["set-cookie: ".len()..].split(';').next().expect("a pair"));
    for path in PATHS {
        let answer = running.get(path, &[&cookie]);
        assert_eq!(answer.status, 200, "{path}");
        for header in [
            "content-security-policy: default-src 'self';",
            "nosniff",
            "no-referrer",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{path}: {header}");
        }
        assert_eq!(running.get(path, &[&cookie, "Sec-Fetch-Site: same-origin"]).status, 200);
        for site in ["cross-site", "same-site"] {
            let site = format!("Sec-Fetch-Site: {site}");
            assert_eq!(running.get(path, &[&cookie, &site, "Sec-Fetch-Dest: empty"]).status, 401);
            assert_eq!(running.get(path, &[&cookie, &site]).status, 401);
            // Somebody followed a link.
            assert_eq!(running.get(path, &[&cookie, &site, "Sec-Fetch-Dest: document"]).status, 200);
        }
    }
    // It was used; who has the cookie may reload the page.
    assert_eq!(running.get(&path, &[]).status, 401);
    assert_eq!(running.get(&path, &[&cookie]).status, 200);
    let next = running.tokens.lock().expect("tokens")[0].clone();
    assert_eq!(running.console.login_token(), next);
    assert_eq!(running.get(&format!("/?token={next}"), &[]).status, 200);
}

#[test]
fn the_token_of_the_api_is_for_the_api_alone() {
    let running = start(vec![volume_in(&formatted())]);
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(running.get("/api/v1/overview", &[&bearer]).status, 200);
    assert_eq!(running.ask("HEAD", "/api/v1/overview", &["Host: localhost", &bearer]).status, 200);
    assert_eq!(running.get("/", &[&bearer]).status, 401);
    assert_eq!(running.get(&format!("/?token={TOKEN}"), &[]).status, 401);
    let login = running.console.login_token();
    assert_eq!(running.get("/api/v1/overview", &[&format!("Authorization: Bearer {login}")]).status, 401);
}

#[test]
fn what_is_no_small_request_is_refused() {
    let running = start(vec![volume_in(&formatted())]);
    let (cookie, bearer) = (running.cookie(), format!("Authorization: Bearer {TOKEN}"));
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"] {
        for path in ["/", "/api/v1/overview"] {
            let answer = running.ask(method, path, &["Host: localhost", &cookie]);
            assert!(matches!(answer.status, 400 | 405), "{method} {path}: {}", answer.status);
        }
    }
    let with_body =
        format!("GET / HTTP/1.1\r\nHost: localhost\r\n{cookie}\r\nContent-Length: 9\r\n\r\nsomething");
    assert_eq!(running.raw(with_body.as_bytes()).status, 413);
    let chunks = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{cookie}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    );
    assert_eq!(running.raw(chunks.as_bytes()).status, 413);
    let long = format!("A: {}", "x".repeat(64 << 10));
    assert!(matches!(running.get("/", &[&cookie, &long]).status, 0 | 400 | 431));
    let many: Vec<String> = (0..200).map(|n| format!("A{n}: b")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(matches!(running.get("/", &many).status, 400 | 431));
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET\r\n\r\n", b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
    {
        let answer = running.raw(&[garbage, &[b'x'; 64], b"\r\n\r\n"].concat());
        assert!(matches!(answer.status, 0 | 400 | 421 | 505), "{}", answer.status);
    }
    for path in
        ["/../etc/passwd", "/%2e%2e/x", "/console.js/", "//", "/api/v1/volumes/0", "/api/v1/volumes/2"]
    {
        assert_eq!(running.get(path, &[&cookie]).status, 404, "{path}");
    }
    for path in ["/api/v1/volumes/1/rates?since=x", "/api/v1/volumes/1/rates?a=b"] {
        let answer = running.get(path, &[&bearer]);
        assert_eq!(answer.status, 400, "{path}");
        assert!(serde_json::from_str::<Value>(&answer.body).expect("JSON")["error"].is_string());
    }
    assert_eq!(running.api("overview").status, 200, "it still works");
}

#[test]
fn strangers_who_only_connect_keep_nobody_out() {
    let running = start(vec![volume_in(&formatted())]);
    let request =
        format!("GET /api/v1/overview HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    // Somebody who is known keeps a connection.
    let mut known = TcpStream::connect(running.address()).expect("connected");
    known.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut answered = || {
        known.write_all(request.as_bytes()).expect("the connection goes on");
        let mut answer = vec![0; 1 << 16];
        let read = known.read(&mut answer).expect("an answer");
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..read]));
    };
    answered();
    let begun = Instant::now();
    let mut strangers = Vec::new();
    for number in 0..600 {
        let mut stranger = TcpStream::connect(running.address()).expect("connected");
        let half: &[u8] = if number % 2 == 0 { b"" } else { b"GET / HTTP/1.1\r\nHost: local" };
        // It may have been cut off already.
        let _ = stranger.write_all(half);
        strangers.push(stranger);
        if number % 50 == 0 {
            assert_eq!(running.api("overview").status, 200);
        }
    }
    assert_eq!(running.api("overview").status, 200);
    answered();
    // Far below what waiting for the time-outs of strangers would take.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let first = &mut strangers[0];
    first.set_read_timeout(Some(TIMEOUT)).expect("set");
    assert!(matches!(first.read(&mut [0; 64]), Ok(0) | Err(_)), "the oldest stranger had to go");
}

#[test]
fn what_a_volume_holds_is_shown_and_no_secret() {
    let engine = formatted();
    let meta = Meta::open(Arc::clone(&engine) as _, Options::default()).expect("opened");
    let never = Interrupt::never();
    let make = |dir, name: &str, kind| {
        let ino = meta.new_ino(&never).expect("an inode");
        let at = At::new(dir, Name::new(name.as_bytes()).expect("a name"));
        let caller = Caller::client();
        let create = Create { at, ino, kind, mode: 0o755, umask: 0, rdev: 0, target: None, caller };
        meta.run(create, &never).expect("made");
        ino
    };
    let shots = make(Ino::ROOT, "shots", FileType::Dir);
    let deep = make(shots, "deep", FileType::Dir);
    make(deep, "file", FileType::File);
    make(Ino::ROOT, "empty", FileType::Dir);
    let quota = |max_space, used_space| Quota { max_space, max_inodes: 10, used_space, used_inodes: 1 };
    let who =
        SessionInfo { host_name: "<script>".into(), mount_point: "/m".into(), ..SessionInfo::default() };
    put(
        &engine,
        vec![
            Row::Quota(QuotaKey::Dir(deep), quota(1000, 950)),
            Row::Quota(QuotaKey::User(7), quota(0, 3)),
            Row::Quota(QuotaKey::Group(8), Quota::UNLIMITED),
            session(90, -60, &who),
            Row::DelFile(Ino(4711), 4096, 1),
        ],
    );
    let member = Member {
        group: "farm".into(),
        address: "192.0.2.1:9600".into(),
        weight: 100,
        fingerprint: Some([7; 32]),
        ..Member::default()
    };
    meta.join_group(member, &never).expect("joined");
    meta.put_report(FSCK_REPORT, r#"{"errors":3}"#.into(), &never).expect("stored");
    meta.put_report(GC_REPORT, "no JSON".into(), &never).expect("stored");
    let running = start(vec![volume_in(&engine)]);
    let wanted = |volume: &Value| volume["clients"]["stale"] == 1 && volume["quotas"]["total"] == 2;
    let volume = running.until("volumes/1", wanted);
    assert_eq!(volume["state"], "warning");
    assert_eq!(volume["space"]["max_bytes"], 1_000_000);
    assert_eq!(volume["settings"]["bucket"], "https://s3.example.com/b");
    assert_eq!(volume["settings"]["encryption"], "aes256gcm-rsa");
    assert_eq!(volume["clients"]["total"], 2);
    assert_eq!(volume["clients"]["shown"][0]["name"], "<script>:/m");
    assert_eq!(volume["quotas"]["shown"][0]["of"], "/shots/deep");
    assert_eq!(volume["quotas"]["shown"][1]["kind"], "user");
    assert_eq!(volume["deletions"]["files"]["count"], 1);
    let [member] = volume["group"]["members"].as_array().expect("members").as_slice() else {
        panic!("{volume:#}")
    };
    assert_eq!((&member["address"], &member["encrypted"]), (&"192.0.2.1:9600".into(), &true.into()));
    assert_eq!(member["session"].as_u64(), Some(meta.sid()));
    assert_eq!(volume["reports"]["fsck"]["errors"], 3);
    assert!(volume["reports"]["gc"].is_null(), "no JSON");
    let directories = &volume["directories"];
    assert_eq!(directories["complete"], true);
    let shown: Vec<(&str, u64, i64)> = directories["shown"]
        .as_array()
        .expect("directories")
        .iter()
        .map(|one| {
            let directories = one["directories"].as_u64().expect("a number");
            (one["path"].as_str().expect("a path"), directories, one["entries"].as_i64().expect("a number"))
        })
        .collect();
    assert_eq!(shown, [("/shots", 2, 2), ("/empty", 1, 0)]);
    let texts: Vec<&str> = volume["problems"]
        .as_array()
        .expect("problems")
        .iter()
        .filter_map(|one| one["text"].as_str())
        .collect();
    assert_eq!(
        texts[..2],
        [
            "A client has stopped sending heartbeats: <script>:/m.",
            "The quota of directory /shots/deep is used to 95 %."
        ]
    );
    let overview = running.json("overview");
    assert_eq!(overview["headline"], "1 warning.");
    for answer in [volume, overview, running.json("volumes/1/rates")] {
        assert!(!answer.to_string().contains("hush"), "{answer:#}");
    }
    meta.close().expect("closed");
}

#[test]
fn a_volume_that_cannot_be_read_says_so_and_comes_back() {
    let engine = Arc::new(MemEngine::new());
    let running = start(vec![volume_in(&engine), volume_in(&formatted())]);
    let failing = running.until("volumes/1", |volume| volume["state"] == "error");
    assert!(
        failing["problems"][0]["text"]
            .as_str()
            .expect("text")
            .starts_with("The volume cannot be read: there is no volume")
    );
    assert!(failing["failing_since"].is_i64() && failing["settings"].is_null());
    running.until("volumes/2", |volume| volume["settings"]["name"] == "vault");
    let overview = running.json("overview");
    assert_eq!((&overview["state"], &overview["headline"]), (&"error".into(), &"1 error.".into()));
    let format = VolumeFormat::parse(SECRETS.as_bytes()).expect("settings");
    Meta::format(engine.as_ref(), &format, SystemClock.now()).expect("formatted");
    let back = running.until("volumes/1", |volume| volume["settings"]["name"] == "vault");
    assert!(back["failing_since"].is_null());
}

/// A mount that shows metrics: answers each request as `answer` says.
fn mount(answer: impl Fn(u32, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for number in 0.. {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _ = stream.read(&mut [0; 1024]);
            answer(number, &mut stream);
        }
    });
    address
}

#[test]
fn rates_come_from_the_mounts_and_no_mount_holds_up_the_others() {
    let engine = formatted();
    let good = mount(|number, stream| {
        let labels = "vol_name=\"vault\",mp=\"/good\"";
        let body = format!(
            "juicefs_fuse_ops_total{{method=\"read\",{labels}}} {}\n\
             juicefs_fuse_ops_durations_seconds{{method=\"read\",{labels}}} {}\n\
             juicefs_fuse_read_size_bytes_sum{{{labels}}} {}\n",
            100 * number,
            number,
            1_000_000 * u64::from(number)
        );
        let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}");
    });
    let endless = mount(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 1 << 12]).is_ok() {}
    });
    let other = mount(|_, stream| {
        let _ = stream
            .write_all(b"HTTP/1.0 200 OK\r\n\r\njuicefs_memory{vol_name=\"another\",mp=\"/other\"} 1\n");
    });
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().map(|address| (silent, address.to_string())).expect("an address");
    let client = |sid, point: &str, metrics: &str, host: &str| {
        let info = SessionInfo {
            host_name: host.into(),
            mount_point: point.into(),
            metrics_addr: metrics.into(),
            ..SessionInfo::default()
        };
        session(sid, 3600, &info)
    };
    put(
        &engine,
        vec![
            client(1, "/good", &good, "here"),
            client(2, "/endless", &endless, "here"),
            client(3, "/other", &other, "here"),
            client(4, "/silent", &silent.1, "here"),
            client(5, "/away", &good, "elsewhere"),
            client(6, "/none", "", "here"),
            client(7, "/wrong", "example.com:80", "here"),
        ],
    );
    let running = start(vec![volume_in(&engine)]);
    let volume =
        running.until("volumes/1", |volume| volume["live"]["rates"]["requests"].as_f64() > Some(0.0));
    assert_eq!((&volume["live"]["clients"], &volume["live"]["silent"]), (&1.into(), &6.into()));
    let reason = |sid: u64| {
        let shown = volume["clients"]["shown"].as_array().expect("clients");
        let found = shown.iter().find(|client| client["session"] == sid).expect("the client");
        found["activity"]["silent"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(reason(1), "");
    for (sid, part) in [
        (2, "no mount"),
        (3, "another mount"),
        (4, "within 3s"),
        (5, "its own machine only"),
        (6, "does not say"),
        (7, "no address"),
    ] {
        assert!(reason(sid).contains(part), "{sid}: {}", reason(sid));
    }
    let mean = volume["live"]["request_ms"].as_f64().expect("a mean");
    assert!((mean - 10.0).abs() < 1e-6, "{mean}");
    let volume = running.until("volumes/1", |volume| volume["live"]["slow"][0]["operation"] == "read");
    assert_eq!(volume["live"]["slow"][0]["slowest"], "here:/good");
    // Points come after the moment that is asked for.
    let rates =
        running.until("volumes/1/rates", |rates| rates["points"].as_array().is_some_and(|all| all.len() > 2));
    let moment = rates["points"][0][0].as_i64().expect("a time");
    let later = running.json(&format!("volumes/1/rates?since={moment}"));
    assert!(later["points"][0][0].as_i64().expect("a time") > moment);
    let names = rates["series"].as_array().expect("names").len();
    assert_eq!(rates["points"][0][1].as_array().expect("values").len(), names);
}
