//! A shell that runs commands for a process which must not fork itself.
//!
//! A process that forks while it has files open in a FUSE mount waits until the mount has flushed
//! these files in the child. A program that inspects the child, such as `ps`, waits, too. A shell
//! that was started earlier does not have these files open.

use std::{
    fmt::Write as _,
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use parking_lot::Mutex;

/// A shell that waits for commands. Dropping it ends it.
#[derive(Debug)]
pub struct Shell {
    child: Child,
    pipes: Option<Mutex<Pipes>>,
}

#[derive(Debug)]
struct Pipes {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Each order is a line; the answer is its exit code, the length of what it printed, and that.
const SCRIPT: &str = r#"
LC_ALL=C
while read -r order; do
    said=$(eval "$order" 2>&1 </dev/null)
    printf '%s %s\n%s' $? ${#said} "$said"
done
"#;

impl Shell {
    /// Starts it.
    ///
    /// # Errors
    /// If there is no `sh`.
    pub fn start() -> io::Result<Self> {
        let mut child =
            Command::new("sh").args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let pipes = orders.zip(answers).map(|(orders, answers)| Mutex::new(Pipes { orders, answers }));
        Ok(Self { child, pipes })
    }

    /// Runs a command and answers what it printed, errors included.
    ///
    /// # Errors
    /// What it printed, if it failed.
    pub fn run(&self, words: &[&str]) -> io::Result<String> {
        let mut order = String::new();
        for word in words {
            let _ = write!(order, "'{}' ", word.replace('\'', r"'\''"));
        }
        let mut pipes = self.pipes.as_ref().ok_or(io::ErrorKind::BrokenPipe)?.lock();
        pipes.orders.write_all(format!("{order}\n").as_bytes())?;
        let mut head = String::new();
        pipes.answers.read_line(&mut head)?;
        let (code, length) = head.trim().split_once(' ').ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut said = vec![0; length.parse().map_err(io::Error::other)?];
        pipes.answers.read_exact(&mut said)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if code == "0" { Ok(said) } else { Err(io::Error::other(format!("{order}: {said}"))) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It ends with its orders.
        self.pipes = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_answer_what_they_print_and_how_they_end() {
        let shell = Shell::start().expect("a shell");
        for word in ["plain", "two words", "it's", "$HOME `id` \\ \"", "", "ä"] {
            let said = shell.run(&["printf", "%s.", word]).expect("printed");
            assert_eq!(said, format!("{word}."));
        }
        let failed = shell.run(&["sh", "-c", "echo out; echo err >&2; exit 3"]).expect_err("it fails");
        assert!(failed.to_string().ends_with("out\nerr"), "{failed}");
        assert_eq!(shell.run(&["seq", "2"]).expect("goes on"), "1\n2");
    }
}
