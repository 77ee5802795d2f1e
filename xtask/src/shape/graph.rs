//! Which files of a crate import which others, and which call methods of which others.

use super::measure::Methods;
use std::collections::{BTreeMap, BTreeSet};

/// The source files of a crate, each with its module and the paths that it names.
#[derive(Debug, Default)]
pub struct Files {
    names: Vec<String>,
    modules: Vec<Vec<String>>,
    paths: Vec<BTreeSet<Vec<String>>>,
}

impl Files {
    /// Adds a file.
    pub fn add(&mut self, name: String, module: Vec<String>, paths: BTreeSet<Vec<String>>) {
        self.names.push(name);
        self.modules.push(module);
        self.paths.push(paths);
    }

    /// The files that import each other in a cycle, directly or through others.
    pub fn in_circles(&self) -> BTreeSet<String> {
        let edges: Vec<BTreeSet<usize>> = (0..self.names.len())
            .map(|file| self.known_to(file))
            .collect();
        let files = in_circle(&edges).into_iter();
        files.map(|file| self.names[file].clone()).collect()
    }

    /// Which top modules each top module imports.
    pub fn between_modules(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in 0..self.names.len() {
            let Some(own) = self.modules[file].first() else {
                continue;
            };
            let of = imports.entry(own.clone()).or_default();
            for other in self.known_to(file) {
                of.extend(
                    self.modules[other]
                        .first()
                        .filter(|top| *top != own)
                        .cloned(),
                );
            }
        }
        imports.retain(|_, of| !of.is_empty());
        imports
    }

    fn known_to(&self, file: usize) -> BTreeSet<usize> {
        let own = &self.modules[file];
        let named = self.paths[file]
            .iter()
            .filter_map(|path| self.resolve(own, path));
        named.filter(|other| *other != file).collect()
    }

    /// The file that a path leads to: that of the deepest module in it that is a file.
    fn resolve(&self, own: &[String], path: &[String]) -> Option<usize> {
        let mut at = own.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            child => {
                at.push(child.to_owned());
                self.file_of(&at)?;
                rest = &rest[1..];
            }
        }
        for part in rest {
            at.push(part.clone());
            if self.file_of(&at).is_none() {
                at.pop();
                break;
            }
        }
        self.file_of(&at)
    }

    fn file_of(&self, module: &[String]) -> Option<usize> {
        self.modules.iter().position(|other| other == module)
    }
}

/// The files whose methods of one type call each other in a circle, each with the type's name. `files`: of one crate.
pub fn method_circles(files: &[(String, BTreeMap<String, Methods>)]) -> BTreeSet<String> {
    let types: BTreeSet<&String> = files.iter().flat_map(|(_, of)| of.keys()).collect();
    let mut found = BTreeSet::new();
    for of in types {
        let of_type = |(name, types): &'_ (String, BTreeMap<String, Methods>)| {
            Some((name.clone(), types.get(of)?.clone()))
        };
        let files: Vec<(String, Methods)> = files.iter().filter_map(of_type).collect();
        let calls = |from: &Methods| {
            let foreign = |to: &(String, Methods)| {
                let mut called = from.called.difference(&from.own);
                called.any(|name| to.1.own.contains(name))
            };
            let called = files.iter().enumerate().filter(|(_, to)| foreign(to));
            called.map(|(at, _)| at).collect()
        };
        let edges: Vec<BTreeSet<usize>> = files.iter().map(|(_, from)| calls(from)).collect();
        let circle = in_circle(&edges).into_iter();
        found.extend(circle.map(|at| format!("{} {of}", files[at].0)));
    }
    found
}

/// The nodes that lead back to themselves.
fn in_circle(edges: &[BTreeSet<usize>]) -> Vec<usize> {
    let leads_back = |node: &usize| reach(*node, edges).contains(node);
    (0..edges.len()).filter(leads_back).collect()
}

/// The files reachable from a file in one step or more.
fn reach(from: usize, edges: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<usize> = edges[from].iter().copied().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(&edges[file]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::{Files, Methods, method_circles};
    use std::collections::BTreeMap;

    fn files(of: &[(&str, &[&str])]) -> Files {
        let split = |path: &str| -> Vec<String> {
            path.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let mut files = Files::default();
        for (module, paths) in of {
            let paths = paths.iter().map(|path| split(path)).collect();
            files.add((*module).to_owned(), split(module), paths);
        }
        files
    }

    #[test]
    fn circles_are_found() {
        let files = files(&[
            ("", &["a::A"]),
            ("a", &["b::B"]),
            ("a::b", &["super::A", "crate::c::C"]),
            ("c", &["self::d", "std::io"]),
            ("e", &["crate::c::C"]),
        ]);
        let circle: Vec<_> = files.in_circles().into_iter().collect();
        assert_eq!(circle, ["a", "a::b"]);
        let imports = files.between_modules();
        assert_eq!(imports.len(), 2);
        assert!(imports["a"].contains("c") && imports["e"].contains("c"));
    }
    #[test]
    fn files_whose_methods_call_each_other_in_a_circle_are_found() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let file = |file: &str, own: &[&str], called: &[&str]| {
            let methods = Methods {
                own: names(own),
                called: names(called),
            };
            (file.to_owned(), BTreeMap::from([("A".to_owned(), methods)]))
        };
        let circle = method_circles(&[
            file("top", &["run"], &["read", "write"]),
            file("read", &["read"], &["sum", "read"]),
            file("sums", &["sum", "check"], &["again"]),
            file("twin", &["again"], &["sum", "write"]),
            file("write", &["write"], &["release"]),
        ]);
        assert_eq!(circle.into_iter().collect::<Vec<_>>(), ["sums A", "twin A"]);
    }
}
