//! Just enough of SPDX licence expressions: `AND`, `OR` (and the old `/`), `WITH`, parentheses.

/// True if an expression can be met by licences that `allowed` accepts. A malformed expression cannot be met.
pub fn is_met(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allowed,
    };
    matches!(parser.any(), Some(true)) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a dyn Fn(&str) -> bool,
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.take("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.take("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let met = self.any()?;
            return self.take(")").then_some(met);
        }
        let (name, rest) = self.words.split_first()?;
        if matches!(*name, ")" | "AND" | "OR" | "WITH") {
            return None;
        }
        self.words = rest;
        if self.take("WITH") {
            // An exception only adds rights to the licence.
            self.words = self.words.split_first()?.1;
        }
        Some((self.allowed)(name))
    }
}

#[cfg(test)]
mod tests {
    use super::is_met;

    #[test]
    fn expressions() {
        let allowed = |name: &str| matches!(name, "MIT" | "Apache-2.0" | "Unicode-3.0");
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 OR MIT AND Apache-2.0",
        ] {
            assert!(is_met(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT MIT",
            "OR MIT",
            "MIT AND",
            "(MIT OR GPL-3.0) AND ISC",
        ] {
            assert!(!is_met(bad, &allowed), "{bad}");
        }
    }
}
