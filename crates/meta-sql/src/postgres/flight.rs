//! A flight: statements that are sent together and are one transaction.
//!
//! The server runs all messages before a Sync as one transaction. It commits at the Sync. After an
//! error it skips the rest and rolls back the transaction. So a flight needs neither BEGIN nor
//! COMMIT. It costs one round trip, even if it has many statements and if some must be prepared.
//! What must stay true: the Sync is the last message of the flight, so that an incomplete flight is
//! never committed.
//!
//! A commit that waits for the disk holds its locks. All commits that add to the same rows would
//! wait for one disk write after the other. So such a change is sent as two transactions. The first
//! makes the change, and commits without that wait. The second locks nothing, and waits for the
//! disk. The server writes its log in order, so the first is on disk then, too. Only then is the
//! change acknowledged. Others may see the change before that, and a crash may undo it, as with any
//! commit whose answer did not come.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::{
    IsNull,
    message::{backend::DataRowBody, frontend},
    types::{ArrayDimension, array_to_sql},
};
use rustc_hash::FxHashSet;

use super::statement::{Statement, Type};
use crate::{codec::Columns, values::Value};

/// Statements and their parameters.
#[derive(Default)]
pub(super) struct Flight<'v> {
    steps: Vec<(Arc<Statement>, Vec<Arg<'v>>)>,
    /// Whether the commit itself does not wait for the disk, but a second transaction does.
    flushes: bool,
    /// The notification after the commit, in a transaction of its own, because transactions that
    /// notify can only commit one at a time.
    notify: Option<String>,
}

/// Commits something, and so waits until all earlier commits are as durable as the session
/// requires.
const FLUSH: &str = "SELECT pg_logical_emit_message(true,'sluice',''::text)";

/// A parameter.
pub(super) enum Arg<'v> {
    One(Value<'v>),
    Many(Vec<Value<'v>>),
}

impl Arg<'_> {
    pub(super) const fn int(value: i64) -> Self {
        Self::One(Value::Int(value))
    }

    /// The numbers from 0 on.
    pub(super) fn places(count: usize) -> Self {
        Self::Many((0..count as i64).map(Value::Int).collect())
    }
}

/// The answer to one statement.
pub(super) type Answer = Vec<RawRow>;

/// One row of a result.
pub(super) struct RawRow {
    bytes: Bytes,
    columns: smallvec::SmallVec<[Option<(u32, u32)>; 24]>,
}

impl<'v> Flight<'v> {
    /// Adds a statement.
    pub(super) fn add(&mut self, statement: Arc<Statement>, args: Vec<Arg<'v>>) {
        self.steps.push((statement, args));
    }

    /// Makes the commit wait for the disk only after its locks are released. `softly` is the
    /// statement that sets this.
    pub(super) fn flush_after(&mut self, softly: Arc<Statement>) {
        self.steps.insert(0, (softly, Vec::new()));
        self.flushes = true;
    }

    /// How many of its marks come after those for which its caller must wait.
    pub(super) fn notices_marks(&self) -> usize {
        usize::from(self.notify.is_some())
    }

    /// Notifies the listeners after the commit.
    pub(super) fn notify(&mut self, statement: String) {
        self.notify = Some(statement);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// How many marks it has.
    pub(super) fn marks(&self) -> usize {
        1 + usize::from(self.flushes) + usize::from(self.notify.is_some())
    }

    /// The flight as it goes out on a connection, the statements that it prepares, in order, and
    /// the length of what is a transaction. `prepared` are those prepared already; `None` prepares
    /// each anew for its one use.
    pub(super) fn encode(
        &self,
        prepared: Option<&FxHashSet<u32>>,
        out: &mut BytesMut,
    ) -> Result<(Vec<u32>, usize), String> {
        let mut prepares = Vec::new();
        for (statement, args) in &self.steps {
            let name = if prepared.is_some() { &*statement.name } else { "" };
            let known = prepared.is_some_and(|known| known.contains(&statement.id))
                || prepared.is_some() && prepares.contains(&statement.id);
            if !known {
                let types = statement.types.iter().map(|kind| kind.oid());
                frontend::parse(name, &statement.text, types, out).map_err(|error| error.to_string())?;
                prepares.push(statement.id);
            }
            let values = args.iter().zip(&statement.types);
            let bound =
                frontend::bind("", name, [1], values, |(arg, kind), out| bind(arg, *kind, out), [1], out);
            bound.map_err(|error| match error {
                frontend::BindError::Conversion(error) => error.to_string(),
                frontend::BindError::Serialization(error) => error.to_string(),
            })?;
            frontend::execute("", 0, out).map_err(|error| error.to_string())?;
        }
        frontend::sync(out);
        let whole = out.len();
        for text in self.flushes.then_some(FLUSH).into_iter().chain(self.notify.as_deref()) {
            frontend::query(text, out).map_err(|error| error.to_string())?;
        }
        Ok((prepares, whole))
    }
}

type Odd = Box<dyn std::error::Error + Sync + Send>;

fn bind(arg: &Arg<'_>, kind: Type, out: &mut BytesMut) -> Result<IsNull, Odd> {
    match arg {
        Arg::One(value) => scalar(value, kind, out),
        Arg::Many(values) => {
            let element = kind.element().ok_or("many values for a parameter that takes one")?;
            let all = ArrayDimension { len: i32::try_from(values.len())?, lower_bound: 1 };
            let all = Some(all).filter(|_| !values.is_empty());
            array_to_sql(all, element.oid(), values, |value, out| scalar(value, element, out), out)?;
            Ok(IsNull::No)
        }
    }
}

fn scalar(value: &Value<'_>, kind: Type, out: &mut BytesMut) -> Result<IsNull, Odd> {
    match (value, kind) {
        (Value::Null, _) => return Ok(IsNull::Yes),
        // An unsigned number keeps its bits.
        (Value::Int(value), Type::I4) => match u32::try_from(*value) {
            Ok(bits) => out.put_u32(bits),
            Err(_) => out.put_i32(i32::try_from(*value)?),
        },
        (Value::Int(value), Type::I8) => out.put_i64(*value),
        (Value::Text(bytes), Type::Text) | (Value::Bytes(bytes), Type::Bytes) => out.put_slice(bytes),
        (value, kind) => return Err(format!("{value:?} for a parameter of type {kind:?}").into()),
    }
    Ok(IsNull::No)
}

impl RawRow {
    pub(super) fn read(body: &DataRowBody) -> std::io::Result<Self> {
        let mut columns = smallvec::SmallVec::new();
        let mut ranges = body.ranges();
        while let Some(range) = ranges.next()? {
            columns.push(range.map(|range| (range.start as u32, range.end as u32)));
        }
        Ok(Self { bytes: body.buffer_bytes().clone(), columns })
    }

    fn column(&self, at: usize) -> Result<Option<&[u8]>, String> {
        let column = self.columns.get(at).ok_or_else(|| format!("there is no column {at}"))?;
        Ok(column.and_then(|(start, end)| self.bytes.get(start as usize..end as usize)))
    }
}

impl Columns for RawRow {
    fn int(&self, at: usize) -> Result<i64, String> {
        let bytes = self.column(at)?.unwrap_or(&[0; 8]);
        if let Ok(bytes) = bytes.try_into() {
            return Ok(i64::from_be_bytes(bytes));
        }
        let bytes = bytes.try_into().map_err(|_| format!("column {at} holds no number"))?;
        Ok(i32::from_be_bytes(bytes).into())
    }

    fn bytes(&self, at: usize) -> Result<&[u8], String> {
        Ok(self.column(at)?.unwrap_or_default())
    }

    fn is_null(&self, at: usize) -> bool {
        matches!(self.column(at), Ok(None))
    }
}
