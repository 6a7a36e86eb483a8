//! Waiting for servers.

/// Waits until something holds, a minute and a half at most: sentinels that were held up do nothing
/// for half a minute.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) -> std::io::Result<()> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while !holds() {
        if std::time::Instant::now() > deadline {
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{what} takes too long")));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
