//! Where the functions of a source file are.

use anyhow::Context;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A function of a source file.
#[derive(Debug)]
pub struct Function {
    /// Its name, after its type's name.
    pub name: String,
    /// Its signature and its body.
    pub lines: RangeInclusive<usize>,
}

/// All functions of a file, except those within other functions. Functions of tests have no lines in a trace.
pub fn of(name: &str, source: &str) -> anyhow::Result<Vec<Function>> {
    let file = syn::parse_file(source).with_context(|| name.to_owned())?;
    let mut reader = Reader::default();
    reader.visit_file(&file);
    Ok(reader.functions)
}

#[derive(Default)]
struct Reader {
    functions: Vec<Function>,
    /// The type whose functions are being read.
    of: String,
}

impl Reader {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (first, last) = (signature.span().start().line, block.span().end().line);
        self.functions.push(Function {
            name: format!("{}{}", self.of, signature.ident),
            lines: first..=last,
        });
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last(),
            _ => None,
        };
        let before = std::mem::take(&mut self.of);
        self.of = of.map(|of| format!("{}::", of.ident)).unwrap_or_default();
        visit::visit_item_impl(self, item);
        self.of = before;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let before = std::mem::replace(&mut self.of, format!("{}::", item.ident));
        visit::visit_item_trait(self, item);
        self.of = before;
    }
}
