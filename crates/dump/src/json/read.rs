//! Reads a JSON dump from its beginning to its end.

use std::io::Read;

use serde::de::DeserializeOwned;
use sluice_meta::schema::{Quota, QuotaKey};
use sluice_types::{FileType, Ino, Name};
use struson::reader::{JsonReader, JsonStreamReader, ReaderError, ReaderSettings, ValueType};

use super::{
    COUNTERS, Head, Node, Tree,
    escape::unescape,
    members::{Acl, Attributes, Chunk, DelFile, Quotas, Sustained, Xattr},
};
use crate::DumpError;

/// What comes next in the trees of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub enum Event {
    /// A tree begins with its root, which is open from now on.
    Begin(Tree, Node),
    /// A directory in the one that is open; it is open from now on.
    Directory(Name, Node),
    /// Something else in the directory that is open.
    File(Name, Node),
    /// The open directory ends.
    Close,
}

/// Reads the head of a dump, then its trees. Memory grows with the depth of the tree only.
pub struct Reader<R: Read> {
    json: JsonStreamReader<R>,
    /// For each open directory whether its entries have begun.
    open: Vec<bool>,
    /// The tree whose name was read with the head.
    tree: Option<Tree>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of the dump that `input` begins with.
    ///
    /// # Errors
    /// If `input` cannot be read, or is no dump.
    pub fn new(input: R) -> Result<(Self, Head), DumpError> {
        // Directories may be nested as deep as they like; whoever reads them keeps no stack.
        let settings = ReaderSettings { max_nesting_depth: None, track_path: false, ..Default::default() };
        let json = JsonStreamReader::new_custom(input, settings);
        let mut reader = Self { json, open: Vec::new(), tree: None, ended: false };
        let head = reader.head()?;
        Ok((reader, head))
    }

    fn head(&mut self) -> Result<Head, DumpError> {
        let mut head = Head::default();
        self.json.begin_object().map_err(text)?;
        while let Some(name) = self.name()? {
            match name.as_str() {
                "Setting" => head.setting = self.value::<serde_json::Value>()?.to_string().into(),
                "Counters" => {
                    let mut found = self.value::<std::collections::BTreeMap<String, i64>>()?;
                    head.counters = COUNTERS
                        .iter()
                        .filter_map(|(counter, name)| Some((*counter, found.remove(*name)?)))
                        .collect();
                }
                "Sustained" => {
                    for Sustained { sid, inodes } in
                        self.value::<Option<Vec<Sustained>>>()?.unwrap_or_default()
                    {
                        head.sustained.extend(inodes.into_iter().flatten().map(|ino| (sid, Ino(ino))));
                    }
                }
                "DelFiles" => {
                    let files = self.value::<Option<Vec<DelFile>>>()?.unwrap_or_default();
                    head.del_files =
                        files.into_iter().map(|file| (Ino(file.inode), file.length, file.expire)).collect();
                }
                "Quotas" => head.quotas.extend(self.quotas(|id| Some(QuotaKey::Dir(Ino(id))))?),
                "UserQuotas" => {
                    head.quotas.extend(self.quotas(|id| Some(QuotaKey::User(id.try_into().ok()?)))?);
                }
                "GroupQuotas" => {
                    head.quotas.extend(self.quotas(|id| Some(QuotaKey::Group(id.try_into().ok()?)))?);
                }
                other => {
                    self.tree = tree(other);
                    if self.tree.is_some() {
                        break;
                    }
                    self.json.skip_value().map_err(text)?;
                }
            }
        }
        if head.setting.is_empty() {
            return Err(DumpError::Text("it has no settings before its tree".into()));
        }
        Ok(head)
    }

    /// What comes next; `None` at the end of the dump.
    ///
    /// # Errors
    /// If the input cannot be read, is cut off, or breaks a rule of the format.
    pub fn event(&mut self) -> Result<Option<Event>, DumpError> {
        if self.ended {
            return Ok(None);
        }
        match self.open.last() {
            None => self.begin(),
            Some(true) => match self.name()? {
                Some(name) => {
                    let name = Name::stored(&unescape(&name));
                    let node = self.node()?;
                    Ok(Some(match node.attr.kind {
                        FileType::Dir => Event::Directory(name, node),
                        _ => Event::File(name, node),
                    }))
                }
                None => self.close(),
            },
            Some(false) => self.close(),
        }
    }

    /// Reads what follows the dump to the end of the input, so that the checksum of a packed file
    /// is compared.
    ///
    /// # Errors
    /// If the input cannot be read, or anything but white space follows.
    pub fn finish(self) -> Result<(), DumpError> {
        self.json.consume_trailing_whitespace().map_err(text)
    }

    fn begin(&mut self) -> Result<Option<Event>, DumpError> {
        loop {
            let tree = match self.tree.take() {
                Some(tree) => tree,
                None => match self.name()? {
                    None => {
                        self.json.end_object().map_err(text)?;
                        self.ended = true;
                        return Ok(None);
                    }
                    Some(name) => {
                        let Some(tree) = tree(&name) else {
                            self.json.skip_value().map_err(text)?;
                            continue;
                        };
                        tree
                    }
                },
            };
            // An empty trash may be null.
            if self.json.peek().map_err(text)? == ValueType::Null {
                self.json.next_null().map_err(text)?;
                continue;
            }
            let root = self.node()?;
            if !root.attr.is_dir() {
                return Err(DumpError::Text(format!("the root of {} is no directory", tree.name())));
            }
            return Ok(Some(Event::Begin(tree, root)));
        }
    }

    fn close(&mut self) -> Result<Option<Event>, DumpError> {
        if self.open.pop() == Some(true) {
            self.json.end_object().map_err(text)?;
        }
        if let Some(name) = self.name()? {
            return Err(DumpError::Text(format!("\"{name}\" follows the entries of a directory")));
        }
        self.json.end_object().map_err(text)?;
        Ok(Some(Event::Close))
    }

    /// A node. Of a directory the entries have begun, or it has none; of all else it is over.
    fn node(&mut self) -> Result<Node, DumpError> {
        self.json.begin_object().map_err(text)?;
        let mut node = match self.name()?.as_deref() {
            Some("attr") => {
                let (ino, attr) = self.value::<Attributes>()?.node().map_err(DumpError::Text)?;
                Node::new(ino, attr)
            }
            _ => return Err(DumpError::Text("a node does not begin with its attributes".into())),
        };
        let dir = node.attr.is_dir();
        while let Some(name) = self.name()? {
            match name.as_str() {
                "symlink" => node.symlink = unescape(&self.value::<String>()?).into(),
                "xattrs" => {
                    let xattrs = self.value::<Option<Vec<Xattr>>>()?.unwrap_or_default();
                    node.xattrs = xattrs.iter().map(Xattr::pair).collect();
                }
                "posix_acl_access" => node.access_acl = self.value::<Option<Acl>>()?.map(Into::into),
                "posix_acl_default" => node.default_acl = self.value::<Option<Acl>>()?.map(Into::into),
                "chunks" => {
                    let chunks = self.value::<Option<Vec<Chunk>>>()?.unwrap_or_default();
                    node.chunks = chunks.into_iter().map(Into::into).collect();
                }
                "entries" if dir && self.json.peek().map_err(text)? == ValueType::Object => {
                    self.json.begin_object().map_err(text)?;
                    self.open.push(true);
                    return Ok(node);
                }
                _ => self.json.skip_value().map_err(text)?,
            }
        }
        if dir {
            self.open.push(false);
        } else {
            self.json.end_object().map_err(text)?;
        }
        Ok(node)
    }

    fn quotas(&mut self, key: impl Fn(u64) -> Option<QuotaKey>) -> Result<Vec<(QuotaKey, Quota)>, DumpError> {
        let quotas = self.value::<Option<Quotas>>()?.unwrap_or_default();
        quotas
            .into_iter()
            .map(|(id, limits)| {
                let key = id.parse().ok().and_then(&key);
                let key = key.ok_or_else(|| DumpError::Text(format!("a quota of \"{id}\"")))?;
                Ok((key, limits.into()))
            })
            .collect()
    }

    /// The name of the next member of the object; `None` after the last.
    fn name(&mut self) -> Result<Option<String>, DumpError> {
        if !self.json.has_next().map_err(text)? {
            return Ok(None);
        }
        self.json.next_name_owned().map(Some).map_err(text)
    }

    fn value<T: DeserializeOwned>(&mut self) -> Result<T, DumpError> {
        self.json.deserialize_next().map_err(|error| DumpError::Text(error.to_string()))
    }
}

fn tree(name: &str) -> Option<Tree> {
    [Tree::Files, Tree::Trash].into_iter().find(|tree| tree.name() == name)
}

fn text(error: ReaderError) -> DumpError {
    match error {
        ReaderError::IoError { error, .. } => DumpError::File(error),
        other => DumpError::Text(other.to_string()),
    }
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("depth", &self.open.len()).finish_non_exhaustive()
    }
}
