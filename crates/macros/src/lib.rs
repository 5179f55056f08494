//! The derive macros of Chapar. Use them through `chapar::prelude`; each is documented on the
//! trait it implements.

mod attributes;
mod choice;
mod effect;
mod event;
mod row;
mod saga;
mod template;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `chapar::Event` from `#[event("subject", …)]`.
#[proc_macro_derive(Event, attributes(event))]
pub fn event(input: TokenStream) -> TokenStream {
    derive(input, event::derive)
}

/// Implements `chapar::Effect` from `#[effect("kind", …)]`.
#[proc_macro_derive(Effect, attributes(effect))]
pub fn effect(input: TokenStream) -> TokenStream {
    derive(input, effect::derive)
}

/// Implements `chapar::FromRow`: each field is read from the column of its name.
#[proc_macro_derive(FromRow, attributes(column))]
pub fn from_row(input: TokenStream) -> TokenStream {
    derive(input, row::derive)
}

/// Implements `chapar::saga::SagaData` from `#[saga("name", …)]`.
#[proc_macro_derive(Saga, attributes(saga))]
pub fn saga(input: TokenStream) -> TokenStream {
    derive(input, saga::derive)
}

/// Implements `chapar::saga::SagaState`, with `Clone`, `Copy`, `PartialEq`, `Eq` and `Debug`.
#[proc_macro_derive(SagaState, attributes(state))]
pub fn saga_state(input: TokenStream) -> TokenStream {
    derive(input, choice::state)
}

/// Implements `chapar::saga::SagaTimer`, with `Clone`, `Copy`, `PartialEq`, `Eq` and `Debug`.
#[proc_macro_derive(SagaTimer, attributes(timer))]
pub fn saga_timer(input: TokenStream) -> TokenStream {
    derive(input, choice::timer)
}

/// Implements `chapar::saga::SagaUndo`: each variant is a step back.
#[proc_macro_derive(SagaUndo)]
pub fn saga_undo(input: TokenStream) -> TokenStream {
    derive(input, choice::undo)
}

/// Makes an enum without fields a text in JSON, in statements and in messages: each variant by
/// its name in snake case, or by `#[text("…")]`.
#[proc_macro_derive(TextEnum, attributes(text))]
pub fn text_enum(input: TokenStream) -> TokenStream {
    derive(input, choice::text)
}

/// Expands, or reports every mistake at the place where it was made.
fn derive(
    input: TokenStream,
    expand: impl FnOnce(&DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}
