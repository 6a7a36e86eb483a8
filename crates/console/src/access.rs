//! Authentication: by a cookie that replaced a one-time token, or by the token of the API.
//!
//! What must stay true: a request is answered only if its `Host` header names this console (this
//! prevents DNS rebinding). A one-time token works once. Tokens are compared in constant time.

use std::{
    collections::VecDeque,
    net::IpAddr,
    time::{Duration, Instant},
};

use aws_lc_rs::{constant_time::verify_slices_are_equal, rand};
use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, COOKIE},
};
use parking_lot::Mutex;

/// Bytes of a token.
const TOKEN: usize = 24;
/// Browsers that are let in at a time; one more, and the one that was longest idle must log in
/// anew.
const BROWSERS: usize = 32;
/// How long one may be idle.
const IDLE: Duration = Duration::from_hours(7 * 24);

/// Called with each new one-time token but the first.
pub type OnToken = Box<dyn Fn(&str) + Send + Sync>;

struct Browser {
    cookie: String,
    seen: Instant,
}

struct State {
    login: String,
    browsers: VecDeque<Browser>,
}

/// Who may read.
pub(crate) struct Access {
    /// Names of this console, in lower case, beside `localhost` and addresses.
    hosts: Vec<String>,
    api: String,
    /// Cookies are not kept apart by port: consoles on one machine each have a name of their own.
    cookie: String,
    on_token: OnToken,
    state: Mutex<State>,
}

impl Access {
    /// `api` is the token of the API, or one is drawn.
    pub(crate) fn new(port: u16, hosts: &[String], api: Option<String>, on_token: OnToken) -> Self {
        Self {
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            api: api.unwrap_or_else(token),
            cookie: format!("sluice_console_{port}"),
            on_token,
            state: Mutex::new(State { login: token(), browsers: VecDeque::new() }),
        }
    }

    /// The one-time token.
    pub(crate) fn login_token(&self) -> String {
        self.state.lock().login.clone()
    }

    /// The token of the API.
    pub(crate) fn api_token(&self) -> &str {
        &self.api
    }

    /// Whether a request with this Host (`NAME` or `NAME:PORT`) is for this console. A page
    /// elsewhere can have a name of its own lead here, but no address.
    pub(crate) fn is_own_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, port)) if port.is_empty() || is_port(port) => name,
                _ => return false,
            },
            None => match host.split_once(':') {
                Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
                Some(_) => return false,
                None => host,
            },
        };
        let name = name.to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }

    /// Exchanges the one-time token for a cookie, as `Set-Cookie` has it; `None` if it is another,
    /// or was used.
    pub(crate) fn log_in(&self, given: &str) -> Option<String> {
        let (cookie, next) = (token(), token());
        {
            let mut state = self.state.lock();
            if !same(given, &state.login) {
                return None;
            }
            state.login.clone_from(&next);
            if state.browsers.len() >= BROWSERS {
                state.browsers.pop_front();
            }
            state.browsers.push_back(Browser { cookie: cookie.clone(), seen: Instant::now() });
        }
        (self.on_token)(&next);
        Some(format!("{}={cookie}; Path=/; HttpOnly; SameSite=Strict", self.cookie))
    }

    /// Whether a browser that has logged in sent these headers.
    pub(crate) fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut given = pairs.filter(|(name, _)| *name == self.cookie).map(|(_, value)| value);
        let mut state = self.state.lock();
        state.browsers.retain(|browser| browser.seen.elapsed() < IDLE);
        let found =
            given.find_map(|value| state.browsers.iter().position(|known| same(value, &known.cookie)));
        let Some(mut browser) = found.and_then(|at| state.browsers.remove(at)) else { return false };
        browser.seen = Instant::now();
        state.browsers.push_back(browser);
        true
    }

    /// Whether a program that has the token of the API sent these headers.
    pub(crate) fn has_bearer(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|given| given.to_str().ok());
        let Some((scheme, given)) = given.and_then(|given| given.split_once(' ')) else { return false };
        scheme.eq_ignore_ascii_case("Bearer") && same(given.trim(), &self.api)
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn same(given: &str, wanted: &str) -> bool {
    verify_slices_are_equal(given.as_bytes(), wanted.as_bytes()).is_ok()
}

/// Draws a token. One that cannot be drawn lets nobody in.
fn token() -> String {
    let mut bytes = [0; TOKEN];
    match rand::fill(&mut bytes) {
        Ok(()) => hex::encode(bytes),
        // No text that a request can hold.
        Err(_) => "\0".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn access() -> Access {
        Access::new(1, &["Console.Example.com".into()], None, Box::new(|_| ()))
    }

    #[test]
    fn only_names_of_the_console_are_its_own() {
        let access = access();
        for own in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:9567",
            "[::1]:9567",
            "[::1]",
            "192.0.2.1",
            "console.example.com",
            "console.EXAMPLE.com:80",
        ] {
            assert!(access.is_own_host(own), "{own}");
        }
        for other in [
            "",
            "evil.example.com",
            "localhost.evil.example.com",
            "127.0.0.1.evil.com",
            "[::1",
            "a:b",
            "[::1]x",
        ] {
            assert!(!access.is_own_host(other), "{other}");
        }
    }

    #[test]
    fn a_token_is_good_once_and_another_follows() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keep = {
            let seen = Arc::clone(&seen);
            Box::new(move |token: &str| seen.lock().push(token.to_owned()))
        };
        let access = Access::new(7, &[], None, keep);
        let first = access.login_token();
        assert_eq!(access.log_in(""), None);
        assert_eq!(access.log_in(&first[1..]), None);
        let cookie = access.log_in(&first).expect("good");
        assert!(cookie.starts_with("sluice_console_7=") && cookie.ends_with("; HttpOnly; SameSite=Strict"));
        assert_eq!(access.log_in(&first), None, "it was used");
        let next = seen.lock()[0].clone();
        assert_eq!(access.login_token(), next);
        assert!(access.log_in(&next).is_some());
    }

    #[test]
    fn a_browser_that_was_longest_idle_must_make_room() {
        let access = access();
        let log_in = || {
            let cookie = access.log_in(&access.login_token()).expect("good");
            let mut headers = HeaderMap::new();
            let pair = cookie.split(';').next().unwrap_or_default();
            headers.insert(COOKIE, format!("a=b; {pair}; c").parse().expect("a header"));
            headers
        };
        let (first, second) = (log_in(), log_in());
        for _ in 0..BROWSERS - 1 {
            assert!(access.has_cookie(&first), "it is not idle");
            log_in();
        }
        assert!(access.has_cookie(&first) && !access.has_cookie(&second));
        assert!(!access.has_cookie(&HeaderMap::new()));
    }

    #[test]
    fn the_token_of_the_api_is_its_own() {
        let access = Access::new(1, &[], Some("0123456789abcdef".into()), Box::new(|_| ()));
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
            access.has_bearer(&headers)
        };
        assert!(with("Bearer 0123456789abcdef") && with("bearer 0123456789abcdef"));
        for wrong in ["0123456789abcdef", "Bearer", "Bearer 0123", "Basic 0123456789abcdef"] {
            assert!(!with(wrong), "{wrong}");
        }
        assert!(!with(&format!("Bearer {}", access.login_token())));
        assert_eq!(access.log_in("0123456789abcdef"), None, "it is no one-time token");
    }
}
