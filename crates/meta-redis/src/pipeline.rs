//! Commands that are sent to the server together.
//!
//! Arguments are encoded once, directly into the buffer that is sent. A script is named by its
//! digest. Only if the server does not know it, the pipeline is encoded again with the sources. In
//! a cluster, a script declares one key.

use crate::script::Script;

/// Commands to be sent together.
#[derive(Clone, Default)]
pub(crate) struct Pipeline {
    commands: Vec<Command>,
}

/// One command.
#[derive(Clone)]
pub(crate) struct Command {
    script: Option<&'static Script>,
    pub(crate) args: Args,
}

/// Encoded arguments.
#[derive(Clone, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    count: usize,
}

impl Args {
    /// Adds one.
    pub(crate) fn push(&mut self, arg: &[u8]) {
        header(&mut self.bytes, b'$', arg.len());
        self.bytes.extend_from_slice(arg);
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    /// Adds several.
    pub(crate) fn extend<'a>(&mut self, args: impl IntoIterator<Item = &'a [u8]>) {
        for arg in args {
            self.push(arg);
        }
    }

    /// Adds a number as decimal text.
    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Adds those of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

impl Pipeline {
    /// A pipeline of one script.
    pub(crate) fn of_script(script: &'static Script, args: Args) -> Self {
        Self { commands: vec![Command { script: Some(script), args }] }
    }

    /// Adds a command. Returns its arguments, to be added to.
    pub(crate) fn command(&mut self, name: &str) -> &mut Args {
        // Most commands fit into this.
        let mut args = Args { bytes: Vec::with_capacity(64), count: 0 };
        args.push(name.as_bytes());
        self.add(None, args)
    }

    /// Adds a script without keys.
    pub(crate) fn script(&mut self, script: &'static Script, args: Args) {
        self.add(Some(script), args);
    }

    fn add(&mut self, script: Option<&'static Script>, args: Args) -> &mut Args {
        let at = self.commands.len();
        self.commands.push(Command { script, args });
        &mut self.commands[at].args
    }

    /// How many answers there will be.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether the command at that place is about one key alone.
    pub(crate) fn is_of_one_key(&self, at: usize) -> bool {
        let command = &self.commands[at];
        let several = command.args.bytes.starts_with(b"$4\r\nMGET\r\n") && command.args.count > 2;
        command.script.is_none() && !several
    }

    /// The commands at these places, each after an ASKING command.
    pub(crate) fn asking(&self, places: &[usize]) -> Self {
        let mut asking = Self::default();
        for at in places {
            asking.command("ASKING");
            asking.commands.push(self.commands[*at].clone());
        }
        asking
    }

    /// The bytes to send; scripts declare the key, if there is one.
    pub(crate) fn render(&self, sources: bool, key: Option<&[u8]>) -> Vec<u8> {
        let length = |command: &Command| command.args.bytes.len() + 96 + if sources { 16_384 } else { 0 };
        let mut out = Vec::with_capacity(self.commands.iter().map(length).sum());
        for command in &self.commands {
            match command.script {
                None => header(&mut out, b'*', command.args.count),
                Some(script) => {
                    let (name, body) =
                        if sources { ("EVAL", script.source) } else { ("EVALSHA", script.sha()) };
                    let keys = if key.is_some() { "1" } else { "0" };
                    let mut call = Args::default();
                    call.extend([name, body, keys].map(str::as_bytes).into_iter().chain(key));
                    header(&mut out, b'*', call.count + command.args.count);
                    out.extend_from_slice(&call.bytes);
                }
            }
            out.extend_from_slice(&command.args.bytes);
        }
        out
    }
}

fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}
