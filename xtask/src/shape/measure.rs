//! Measures one source file.

use super::COLUMNS_MAX;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The measurements of a file. Modules of tests count only in `functions`.
#[derive(Debug, Default)]
pub struct Measured {
    /// Each function's name, after its type's name, and its lines.
    pub functions: Vec<(String, usize)>,
    /// Lines of code that are too wide. Comments may be wider.
    pub wide_lines: usize,
    /// Each struct's name and its number of fields.
    pub fields: Vec<(String, usize)>,
    /// True if it imports everything from its parent, private items included.
    pub globs_parent: bool,
    /// The paths that it names, starting with `crate`, `super` or one of its own modules.
    pub paths: BTreeSet<Vec<String>>,
    /// For each type, its methods here, and the methods that these call on `self`.
    pub methods: BTreeMap<String, Methods>,
}

/// The methods of one type in one file.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    /// Their names.
    pub own: BTreeSet<String>,
    /// The names of those that they call on `self`.
    pub called: BTreeSet<String>,
}

impl Measured {
    /// Measures a file's text.
    pub fn new(name: &str, text: &str) -> anyhow::Result<Self> {
        let file = syn::parse_file(text).with_context(|| name.to_owned())?;
        let mut reader = Reader::default();
        reader.visit_file(&file);
        reader.measured.wide_lines = text.lines().filter(|line| is_wide(line)).count();
        Ok(reader.measured)
    }
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX && !line.trim_start().starts_with("//")
}

#[derive(Default)]
struct Reader {
    measured: Measured,
    /// The type whose functions are being read.
    of: String,
    /// How many modules of tests, and how many other modules in this file, enclose the current item.
    tests: usize,
    inner: usize,
}

impl Reader {
    fn function(&mut self, name: &syn::Ident, whole: proc_macro2::Span) {
        let lines = whole.end().line - whole.start().line + 1;
        self.measured
            .functions
            .push((format!("{}{name}", self.of), lines));
    }

    /// What is noted of the type whose functions are being read, unless it is a test's.
    fn methods(&mut self) -> Option<&mut Methods> {
        let of = self.of.strip_suffix("::")?;
        let methods = &mut self.measured.methods;
        (self.tests == 0).then(|| methods.entry(of.to_owned()).or_default())
    }

    fn path(&mut self, path: Vec<String>) {
        // A module within a file belongs to that file, and so does its `super`.
        if self.tests == 0 && (self.inner == 0 || path.first().is_some_and(|p| p != "super")) {
            self.measured.paths.insert(path);
        }
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(path.ident.to_string()), &path.tree),
            syn::UseTree::Name(name) => self.path(with(name.ident.to_string())),
            syn::UseTree::Rename(name) => self.path(with(name.ident.to_string())),
            syn::UseTree::Glob(_) => {
                if before == ["super"] && self.tests == 0 && self.inner == 0 {
                    self.measured.globs_parent = true;
                }
                self.path(before.to_vec());
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let from = item.sig.span().join(item.block.span());
        self.function(&item.sig.ident, from.unwrap_or_else(|| item.span()));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let from = item.sig.span().join(item.block.span());
        self.function(&item.sig.ident, from.unwrap_or_else(|| item.span()));
        if let Some(methods) = self.methods() {
            methods.own.insert(item.sig.ident.to_string());
        }
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_own = matches!(&*call.receiver, syn::Expr::Path(of) if of.path.is_ident("self"));
        if let Some(methods) = self.methods().filter(|_| is_own) {
            methods.called.insert(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| format!("{}::", s.ident)),
            _ => None,
        };
        let before = std::mem::replace(&mut self.of, of.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.of = before;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if self.tests == 0 {
            let of = (item.ident.to_string(), item.fields.len());
            self.measured.fields.push(of);
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let (tests, inner) = (
            usize::from(is_test(&item.attrs)),
            usize::from(item.content.is_some()),
        );
        self.tests += tests;
        self.inner += inner;
        visit::visit_item_mod(self, item);
        self.tests -= tests;
        self.inner -= inner;
    }

    /// A visibility is not an import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|s| s.ident.to_string());
        if path.segments.len() > 1 {
            self.path(names.collect());
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_measured() {
        let wide = format!("    let x = \"{}\";\n", "x".repeat(COLUMNS_MAX));
        let text = format!(
            "use super::*;\nstruct A {{ a: u8, b: u8 }}\nimpl A {{\n    fn f() {{\n{wide}    }}\n}}\n\
             fn g() {{ crate::b::c(); }}\n#[cfg(test)]\nmod tests {{ use crate::d; fn h() {{}} }}\n"
        );
        let measured = Measured::new("a.rs", &text).unwrap();
        let named = |name: &str, lines| (name.to_owned(), lines);
        assert_eq!(
            measured.functions,
            [named("A::f", 3), named("g", 1), named("h", 1)]
        );
        assert_eq!(measured.wide_lines, 1);
        assert_eq!(measured.fields, [named("A", 2)]);
        assert!(measured.globs_parent);
        let paths: Vec<_> = measured.paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["crate::b::c", "super"]);
    }

    #[test]
    fn methods_and_calls_of_each_type_are_noted() {
        let text = "impl A { fn f(&self) { self.g(); self.part.h(); (|| self.i())(); } }\n\
                    impl T for B { fn f(&self) {} }\n\
                    #[cfg(test)]\nmod tests { impl A { fn t(&self) { self.u(); } } }\n";
        let methods = Measured::new("a.rs", text).unwrap().methods;
        let named = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
        assert_eq!(methods.keys().collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(named(&methods["A"].own), ["f"]);
        assert_eq!(named(&methods["A"].called), ["g", "i"]);
        assert!(methods["B"].called.is_empty());
    }

    #[test]
    fn tests_may_import_all_of_their_parent() {
        let text = "#[cfg(test)]\nmod tests { use super::*; }\nmod inner { use super::*; }\n";
        assert!(!Measured::new("a.rs", text).unwrap().globs_parent);
    }
}
