//! The statements that only read.
//!
//! What must stay true: the columns of a result are in the order in which `codec` reads them. If
//! there are many requests, the index of the request comes before the columns.

use super::{
    columns::{equal, names, types, values_table},
    template::{Template, Type},
};
use crate::{
    codec::{Record, joined_columns},
    schema::{Column, Dialect},
    text::{Look, look},
};

pub(super) fn text(what: Template, record: Record, columns: &[Column]) -> (String, Vec<Type>) {
    let shape = record.shape();
    let (table, listed) = (shape.table, shape.columns);
    let named = &columns[..shape.named.min(columns.len())];
    match what {
        Template::Look(what) => (look(what, record, Dialect::Postgres), look_types(what, named)),
        Template::GetMany => {
            let (from, types) = values_table(named);
            let wanted = names(columns, "n.");
            (format!("SELECT k.at,{wanted} FROM {from} JOIN {table} n ON {}", equal(named)), types)
        }
        Template::List if record == Record::Parents => (
            format!(
                "SELECT k.at,n.* FROM unnest($1::int4[],$2::int8[]) k(at,id) CROSS JOIN LATERAL \
                 (SELECT {listed} FROM {table} WHERE inode=k.id GROUP BY inode,parent) n"
            ),
            vec![Type::I4s, Type::I8s],
        ),
        Template::List => by(columns, table, columns[0].name),
        Template::OfSession => by(columns, table, "sid"),
        _ => (
            format!(
                "SELECT k.at,{} FROM unnest($1::int4[],$2::int8[],$3::bytea[]) k(at,parent,name) \
                 JOIN jfs_edge e ON e.parent=k.parent AND e.name=k.name LEFT JOIN jfs_node n ON n.inode=e.inode",
                joined_columns()
            ),
            vec![Type::I4s, Type::I8s, Type::Blobs],
        ),
    }
}

fn by(columns: &[Column], table: &str, column: &str) -> (String, Vec<Type>) {
    let wanted = names(columns, "n.");
    (
        format!(
            "SELECT k.at,{wanted} FROM unnest($1::int4[],$2::int8[]) k(at,id) JOIN {table} n ON n.{column}=k.id"
        ),
        vec![Type::I4s, Type::I8s],
    )
}

/// The types of the parameters of a statement with one question.
fn look_types(what: Look, named: &[Column]) -> Vec<Type> {
    match what {
        Look::Get => types(named),
        Look::Behind => [types(named), vec![Type::I8]].concat(),
        Look::Follow => vec![Type::I8, Type::Bytes],
        Look::Entries | Look::EntriesNodes => vec![Type::I8, Type::Bytes, Type::I8],
        Look::Last | Look::Count => Vec::new(),
        Look::Range => vec![Type::I8; 3],
        Look::List | Look::OfSession => vec![Type::I8],
        Look::Names | Look::Page => vec![Type::I8; 2],
    }
}
