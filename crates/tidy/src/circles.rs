//! No two files of a crate use each other, directly or indirectly. So each can be read and tested
//! with what is below it.
//!
//! The same holds for two sibling modules with all their submodules. So the modules of a directory
//! have an order in which every dependency points downwards.
//!
//! A file uses another one if it names something of it: in a `use`, or by a path. A name that a
//! parent re-exports belongs to the file that defines it. A parent that only declares its children
//! and re-exports their names uses none of them. Tests may use anything. The rule reads text. It
//! does not see methods, because no path names them, or macros that are used without a path.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Fault, Source,
    paths::{Import, Names, names},
};

/// A file by its module's path within the crate.
type Module = Vec<String>;

/// The files of one crate.
struct Files<'s> {
    names: BTreeMap<Module, (&'s str, Names)>,
}

/// No file of a crate is used by what it uses.
pub fn circles(sources: &[Source]) -> Vec<Fault> {
    let folders: BTreeSet<&str> = sources.iter().filter_map(Source::crate_folder).collect();
    let mut faults = Vec::new();
    for folder in folders {
        faults.extend(Files::of(folder, sources).circles());
    }
    faults
}

impl<'s> Files<'s> {
    fn of(folder: &str, sources: &'s [Source]) -> Self {
        let root = format!("crates/{folder}/src/");
        let library = sources.iter().any(|source| source.path == format!("{root}lib.rs"));
        let mut files = BTreeMap::new();
        for source in sources {
            let Some(path) = source.path.strip_prefix(&root).and_then(|path| path.strip_suffix(".rs")) else {
                continue;
            };
            // Nothing in a library can use the program beside it.
            if path == "tests"
                || path.ends_with("/tests")
                || path.ends_with("_tests")
                || library && path == "main"
            {
                continue;
            }
            let mut module: Module = path.split('/').map(str::to_owned).collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            files.insert(module, (source.path.as_str(), names(source)));
        }
        Self { names: files }
    }

    /// Every cycle: of files, then of sibling modules.
    fn circles(&self) -> Vec<Fault> {
        let mut all: Vec<Arrow<'_>> = Vec::new();
        for from in self.names.keys() {
            let arrows = self.arrows(from).into_iter();
            all.extend(arrows.map(|(to, name)| Arrow { from, to, ends: (from.clone(), to.clone()), name }));
        }
        let mut faults: Vec<Fault> = self
            .circles_of(&all)
            .map(|(count, lines)| format!("{count} files use each other:\n{lines}"))
            .collect();
        if faults.is_empty() {
            let beside: Vec<Arrow<'_>> = all.into_iter().filter_map(Arrow::beside).collect();
            faults.extend(self.circles_of(&beside).map(|(count, lines)| {
                format!("{count} modules beside each other use each other, with what is below them:\n{lines}")
            }));
        }
        faults
    }

    /// Every cycle of these arrows. For each, how many are in it, and an arrow to another.
    fn circles_of(&self, arrows: &[Arrow<'_>]) -> impl Iterator<Item = (usize, String)> {
        let mut next: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
        for Arrow { ends: (from, to), .. } in arrows {
            next.entry(to).or_default();
            next.entry(from).or_default().insert(to);
        }
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            next.keys().map(|module| (*module, reached(module, &next))).collect();
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for (module, there) in &reached {
            let circle: BTreeSet<&Module> =
                there.iter().copied().filter(|other| reached[*other].contains(module)).collect();
            if circle.is_empty() || !seen.insert(*module) {
                continue;
            }
            seen.extend(&circle);
            let lines = circle.iter().filter_map(|from| {
                let leads = |arrow: &&Arrow<'_>| arrow.ends.0 == **from && circle.contains(&arrow.ends.1);
                let Arrow { from, to, name, .. } = arrows.iter().find(leads)?;
                Some(format!("  {} uses `{name}` of {}", self.names[*from].0, self.names[*to].0))
            });
            found.push((circle.len(), lines.collect::<Vec<_>>().join("\n")));
        }
        found.into_iter()
    }

    /// The files that a file uses, each with a name that it uses of it.
    fn arrows(&self, from: &Module) -> BTreeMap<&Module, String> {
        let (_, names) = &self.names[from];
        let mut arrows = BTreeMap::new();
        let mut note = |path: &[String]| {
            if let Some((to, name)) = self.home(from, path)
                && to != from
            {
                arrows.entry(to).or_insert(name);
            }
        };
        for import in &names.imports {
            let child = self.module(from, &import.path).is_some_and(|(to, _)| to.starts_with(from));
            if !(import.public && child) || names.words.contains(&import.name) {
                note(&import.path);
            }
        }
        for path in &names.paths {
            match names.imports.iter().find(|import| import.name == path[0]) {
                // By a module that was imported.
                Some(import) => note(&[&import.path[..], &path[1..]].concat()),
                None => note(path),
            }
        }
        arrows
    }

    /// The file that has what is named in `from` by a path, and the name; `None` if no file of the
    /// crate has it.
    fn home(&self, from: &Module, path: &[String]) -> Option<(&Module, String)> {
        let (mut to, mut rest) = self.module(from, path)?;
        // A name may be re-exported several times.
        for _ in 0..8 {
            let Some(name) = rest.first() else { break };
            let handed_on = |import: &&Import| import.name == *name && import.path.len() > 1;
            let Some(import) = self.names[to].1.imports.iter().find(handed_on) else { break };
            (to, rest) = self.module(to, &import.path)?;
        }
        Some((to, rest.first().cloned().unwrap_or_else(|| "*".into())))
    }

    /// The module that a path in `from` leads to, and what is left of the path.
    fn module(&self, from: &Module, path: &[String]) -> Option<(&Module, Vec<String>)> {
        let (first, mut rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            child => [from, &[child.to_owned()][..]].concat(),
        };
        if !matches!(first.as_str(), "crate" | "self" | "super") && !self.names.contains_key(&base) {
            return None;
        }
        while let Some((next, left)) = rest.split_first() {
            let deeper = [&base, std::slice::from_ref(next)].concat();
            if next == "super" {
                base.pop();
            } else if self.names.contains_key(&deeper) {
                base = deeper;
            } else {
                break;
            }
            rest = left;
        }
        let (module, _) = self.names.get_key_value(&base)?;
        Some((module, rest.to_vec()))
    }
}

/// A file that uses another.
struct Arrow<'m> {
    from: &'m Module,
    to: &'m Module,
    /// What stands for the two: themselves, or the modules they lie in.
    ends: (Module, Module),
    name: String,
}

impl Arrow<'_> {
    /// The same between the modules beside each other, if neither file lies above the other.
    fn beside(mut self) -> Option<Self> {
        let common = self.from.iter().zip(self.to).take_while(|(from, to)| from == to).count();
        let end = |module: &Module| module.get(..=common).map(<[String]>::to_vec);
        self.ends = (end(self.from)?, end(self.to)?);
        Some(self)
    }
}

/// All that a module uses, directly or indirectly.
fn reached<'m>(from: &Module, arrows: &BTreeMap<&'m Module, BTreeSet<&'m Module>>) -> BTreeSet<&'m Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&'m Module> = arrows[from].iter().copied().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(arrows[module].iter().copied());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cycles of a crate with these files.
    fn found(files: &[(&str, &str)]) -> Vec<Fault> {
        let source = |(path, text): &(&str, &str)| Source::new(&format!("crates/a/src/{path}.rs"), text);
        circles(&files.iter().map(source).collect::<Vec<_>>())
    }

    #[test]
    fn two_files_that_use_each_other_are_found_and_named() {
        let files =
            [("lib", "mod b;\nmod c;\n"), ("b", "use crate::c::C;"), ("c", "fn f() { crate::b::g() }")];
        let wanted = "2 files use each other:\n  crates/a/src/b.rs uses `C` of crates/a/src/c.rs\n  \
                      crates/a/src/c.rs uses `g` of crates/a/src/b.rs";
        assert_eq!(found(&files), [wanted]);
        assert_eq!(found(&files[..2]), Vec::<Fault>::new());
    }

    #[test]
    fn a_circle_round_about_is_found() {
        let files =
            [("b", "use super::c::{C, D};"), ("c", "use crate::{d::D};"), ("d", "use crate::b;\nb::f();")];
        assert_eq!(found(&[&files[..], &[("lib", "mod b; mod c; mod d;")]].concat()).len(), 1);
    }

    #[test]
    fn a_name_that_is_handed_on_belongs_to_the_file_that_has_it() {
        let lib = ("lib", "mod b;\nmod c;\npub use b::B;\npub use c::C;\n");
        assert_eq!(found(&[lib, ("b", "use crate::C;"), ("c", "use crate::B;")]).len(), 1);
        assert_eq!(found(&[lib, ("b", "use crate::C;"), ("c", "struct C;")]).len(), 0);
    }

    #[test]
    fn a_parent_may_hand_names_on_but_not_use_them_while_its_children_use_it() {
        let child = ("b/c", "use super::Parent;\npub struct C;");
        let lib = ("lib", "mod b;");
        assert_eq!(found(&[lib, child, ("b", "mod c;\npub use self::c::C;\npub struct Parent;")]).len(), 0);
        assert_eq!(found(&[lib, child, ("b", "mod c;\npub use c::C;\npub struct Parent(C);")]).len(), 1);
        assert_eq!(found(&[lib, child, ("b", "mod c;\npub struct Parent(c::C);")]).len(), 1);
        assert_eq!(found(&[lib, child, ("b/mod", "mod c;\nuse c::C;\npub struct Parent;")]).len(), 1);
    }

    #[test]
    fn modules_beside_each_other_have_an_order() {
        let lib = ("lib", "mod b;\nmod c;");
        let files = [lib, ("b/one", "use crate::c::two::C;"), ("b/three", ""), ("c/two", "pub struct C;")];
        assert_eq!(found(&files), Vec::<Fault>::new());
        let back = [
            ("b", "mod one; mod three;"),
            ("c", "mod two; mod four;"),
            ("c/four", "use crate::b::three::B;"),
        ];
        assert_eq!(found(&[&files[..], &back].concat()).len(), 1);
    }

    #[test]
    fn tests_comments_and_texts_do_not_count() {
        let lib = ("lib", "mod b;\nmod c;");
        let user = ("c", "use crate::b::B;");
        for text in [
            "#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n",
            "// As crate::c::C does.\n",
            "const TEXT: &str = \"crate::c::C\";\n",
            "use std::c::C;\n",
        ] {
            assert_eq!(found(&[lib, user, ("b", text)]), Vec::<Fault>::new(), "{text}");
        }
        assert_eq!(found(&[lib, user, ("b", ""), ("b/tests", "use crate::c::C;")]).len(), 0);
    }
}
