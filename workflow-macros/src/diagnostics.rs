//! The mistakes of one item, collected so that all of them are reported at once.
//!
//! Owns the list and the promise that nobody drops it unread. It never decides what is
//! emitted beside the messages: that is `fallback`.

use std::cell::RefCell;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// Where a mistake was found, which decides what can still be emitted beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the attribute's options or in the body: the function's outside is sound, so the
    /// real expansion is emitted too.
    Inside,
    /// In the signature: no real expansion would compile, so a stub stands in for it.
    Signature,
}

/// Collects mistakes. Must be emptied with [`Diagnostics::finish`].
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    found: RefCell<Vec<(Place, syn::Error)>>,
}

/// All mistakes of one item.
#[derive(Debug)]
pub(crate) struct Findings {
    /// One `compile_error!` per mistake.
    pub(crate) messages: TokenStream,
    /// Whether one of them is in the signature.
    pub(crate) signature_is_sound: bool,
}

impl Diagnostics {
    /// Records a mistake on the tokens that make it.
    pub(crate) fn on(&self, place: Place, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.push(place, syn::Error::new_spanned(tokens, message));
    }

    /// Records a mistake that the parser found.
    pub(crate) fn push(&self, place: Place, error: syn::Error) {
        self.found.borrow_mut().push((place, error));
    }

    /// Returns whether the signature is free of mistakes so far.
    pub(crate) fn signature_is_sound(&self) -> bool {
        let found = self.found.borrow();
        found.iter().all(|(place, _)| *place != Place::Signature)
    }

    /// Empties the list into what the compiler is shown.
    pub(crate) fn finish(self) -> Findings {
        let signature_is_sound = self.signature_is_sound();
        let messages = self
            .found
            .take()
            .into_iter()
            .map(|(_, error)| error.into_compile_error())
            .collect();
        Findings {
            messages,
            signature_is_sound,
        }
    }
}

impl Drop for Diagnostics {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let lost = self.found.borrow().len();
            assert_eq!(lost, 0, "mistakes were found and never reported");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_reported_in_the_order_it_was_found() {
        let diagnostics = Diagnostics::default();
        diagnostics.on(Place::Inside, quote::quote!(x), "first");
        diagnostics.on(Place::Inside, quote::quote!(x), "second");
        let findings = diagnostics.finish();
        let text = findings.messages.to_string();
        assert!(findings.signature_is_sound);
        assert!(text.find("first").expect("reported") < text.find("second").expect("reported"));
    }

    #[test]
    fn one_mistake_in_the_signature_makes_it_unsound() {
        let diagnostics = Diagnostics::default();
        diagnostics.on(Place::Inside, quote::quote!(x), "body");
        diagnostics.on(Place::Signature, quote::quote!(x), "signature");
        assert!(!diagnostics.finish().signature_is_sound);
    }

    #[test]
    #[should_panic(expected = "never reported")]
    fn mistakes_that_nobody_reads_are_a_bug() {
        let diagnostics = Diagnostics::default();
        diagnostics.on(Place::Inside, quote::quote!(x), "lost");
    }
}
