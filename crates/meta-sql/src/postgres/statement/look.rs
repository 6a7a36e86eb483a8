//! The statements that only look.
//!
//! What must stay true: what they answer stands in the order in which `codec` reads it, behind the
//! place of its question where there are many.

use super::{
    columns::{Column, described, equal, names, values_table},
    template::{Template, Type},
};
use crate::codec::Record;

const JOINED: &str = "e.parent,e.name,e.inode,e.type,n.inode,n.type,flags,mode,uid,gid,atime,mtime,ctime,atimensec,\
     mtimensec,ctimensec,nlink,length,rdev,n.parent,access_acl_id,default_acl_id,tier_id";

pub(super) fn text(what: Template, record: Record) -> (String, Vec<Type>) {
    let shape = record.shape();
    let (table, listed) = (shape.table, shape.columns);
    let columns = described(record);
    let named = &columns[..shape.named.min(columns.len())];
    let types = |columns: &[Column]| columns.iter().map(|column| column.kind).collect::<Vec<_>>();
    match what {
        Template::Get if record == Record::Parents => (
            format!("SELECT {listed} FROM {table} WHERE inode=$1 AND parent=$2 GROUP BY inode,parent"),
            vec![Type::I8; 2],
        ),
        Template::Get => {
            let each = named.iter().zip(1..).map(|(column, at)| format!("{}=${at}", column.name));
            let which = each.collect::<Vec<_>>().join(" AND ");
            (format!("SELECT {listed} FROM {table} WHERE {which}"), types(named))
        }
        Template::GetMany => {
            let (from, types) = values_table(named);
            let wanted = names(&columns, "n.");
            (format!("SELECT k.at,{wanted} FROM {from} JOIN {table} n ON {}", equal(named)), types)
        }
        Template::List if record == Record::Parents => (
            format!(
                "SELECT k.at,n.* FROM unnest($1::int4[],$2::int8[]) k(at,id) CROSS JOIN LATERAL \
                 (SELECT {listed} FROM {table} WHERE inode=k.id GROUP BY inode,parent) n"
            ),
            vec![Type::I4s, Type::I8s],
        ),
        Template::List => by(&columns, table, columns[0].name),
        Template::OfSession => by(&columns, table, "sid"),
        Template::Range => (
            format!("SELECT {listed} FROM {table} WHERE inode=$1 AND indx>=$2 AND indx<$3 ORDER BY indx"),
            vec![Type::I8, Type::I8, Type::I8],
        ),
        Template::Follow => (
            format!(
                "SELECT {JOINED} FROM jfs_edge e LEFT JOIN jfs_node n ON n.inode=e.inode \
                 WHERE e.parent=$1 AND e.name=$2"
            ),
            vec![Type::I8, Type::Bytes],
        ),
        Template::FollowMany => (
            format!(
                "SELECT k.at,{JOINED} FROM unnest($1::int4[],$2::int8[],$3::bytea[]) k(at,parent,name) \
                 JOIN jfs_edge e ON e.parent=k.parent AND e.name=k.name LEFT JOIN jfs_node n ON n.inode=e.inode"
            ),
            vec![Type::I4s, Type::I8s, Type::Blobs],
        ),
        Template::Names => ("SELECT name FROM jfs_edge WHERE parent=$1 LIMIT $2".into(), vec![Type::I8; 2]),
        Template::Last => (format!("SELECT max(id) FROM {table}"), Vec::new()),
        Template::Page => page(record, table, listed),
        Template::Entries => (
            format!("SELECT {listed} FROM {table} WHERE parent=$1 AND name>$2 ORDER BY name LIMIT $3"),
            vec![Type::I8, Type::Bytes, Type::I8],
        ),
        _ => (
            format!(
                "SELECT {JOINED} FROM jfs_edge e LEFT JOIN jfs_node n ON n.inode=e.inode \
                 WHERE e.parent=$1 AND e.name>$2 ORDER BY e.name LIMIT $3"
            ),
            vec![Type::I8, Type::Bytes, Type::I8],
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

/// A statement whose first column numbers the rows, behind which come those of the record.
fn page(record: Record, table: &str, listed: &str) -> (String, Vec<Type>) {
    let pair = |a: &str, b: &str, kinds: [Type; 2]| {
        let text = format!("SELECT {listed} FROM {table} WHERE ({a},{b})>($1,$2) ORDER BY {a},{b} LIMIT $3");
        (text, vec![kinds[0], kinds[1], Type::I8])
    };
    let key = match record {
        Record::Quota => return pair("qtype", "qkey", [Type::I4, Type::I8]),
        Record::Writer => return pair("writer", "lane", [Type::I8, Type::I4]),
        Record::Entry | Record::Chunk | Record::Sustained => "id",
        _ => listed.split(',').next().unwrap_or_default(),
    };
    let text = format!("SELECT {key},{listed} FROM {table} WHERE {key}>$1 ORDER BY {key} LIMIT $2");
    (text, vec![Type::I8; 2])
}
