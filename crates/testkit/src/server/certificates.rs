//! Certificates of servers, which the program `openssl` makes.

use std::{io, path::Path, process::Command, sync::OnceLock};

/// Names and contents.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Writes `ca.pem`, an authority that is the same for all servers of this process, and `server.pem`
/// with `server.key`: a certificate for `localhost` and 127.0.0.1 that it signed.
///
/// # Errors
/// Those of files, and what `openssl` says if it fails.
pub fn shared(dir: &Path) -> io::Result<()> {
    static MADE: OnceLock<Result<Files, String>> = OnceLock::new();
    let make = || {
        sign(dir, "DNS:localhost,IP:127.0.0.1")?;
        let read = |name: &'static str| std::fs::read(dir.join(name)).map(|content| (name, content));
        ["ca.pem", "server.pem", "server.key"].into_iter().map(read).collect::<Result<Files, io::Error>>()
    };
    let made = MADE.get_or_init(|| make().map_err(|error| error.to_string()));
    let files = made.as_ref().map_err(|error| io::Error::other(error.clone()))?;
    files.iter().try_for_each(|(name, content)| std::fs::write(dir.join(name), content))
}

/// As [`shared`], with an authority of its own, which has the same name and another key, and for
/// these names (`DNS:localhost,IP:127.0.0.1`).
///
/// # Errors
/// As [`shared`].
pub fn sign(dir: &Path, names: &str) -> io::Result<()> {
    let openssl = |words: &str| {
        let done = Command::new("openssl").args(words.split(' ')).current_dir(dir).output()?;
        let failed = || io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned());
        done.status.success().then_some(()).ok_or_else(failed)
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority"))?;
    openssl(&format!("req -new {key} -keyout server.key -out server.csr -subj /CN=localhost"))?;
    std::fs::write(dir.join("names"), format!("subjectAltName={names}\n"))?;
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out server.pem",
    )
}
