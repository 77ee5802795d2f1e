//! Which files of a crate import which others.

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
        let reached: Vec<BTreeSet<usize>> = (0..self.names.len())
            .map(|file| reach(file, &edges))
            .collect();
        let in_circle = |file: &usize| reached[*file].contains(file);
        (0..self.names.len())
            .filter(in_circle)
            .map(|file| self.names[file].clone())
            .collect()
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
    use super::Files;

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
}
