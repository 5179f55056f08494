//! `#[derive(Event)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Result};

use crate::attributes::{Options, fields};
use crate::template;

const EXAMPLE: &str = r#""shop.order.placed.v1", id = order, intent = "{order}:placed""#;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let fields = fields(input, "Event")?;
    let mut options = Options::of(input, "event", EXAMPLE)?;
    let subject = options.name.clone();
    let aggregate = match options.take_text("aggregate")? {
        Some(aggregate) => aggregate.value(),
        None => aggregate_of(&subject.value()).ok_or_else(|| {
            Error::new(subject.span(), "the subject names no aggregate; add aggregate = \"…\"")
        })?,
    };
    let id = match options.take("id") {
        Some(given) => template::expression(&given, &fields)?,
        None if fields.iter().any(|field| field.ident.as_ref().is_some_and(|f| f == "id")) => {
            quote!(::std::string::ToString::to_string(&self.id))
        }
        None => {
            let message = "say which field holds the aggregate's id: id = field";
            return Err(Error::new(options.span, message));
        }
    };
    let intent = match options.take("intent") {
        Some(given) => {
            let intent = template::expression(&given, &fields)?;
            quote! {
                fn intent(&self) -> ::std::option::Option<::std::string::String> {
                    ::std::option::Option::Some(#intent)
                }
            }
        }
        None => TokenStream::new(),
    };
    options.finish("aggregate, id and intent")?;
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::chapar::Event for #name #types #bounds {
            const SUBJECT: &'static str = #subject;
            const AGGREGATE: &'static str = #aggregate;
            fn aggregate_id(&self) -> ::std::string::String {
                #id
            }
            #intent
        }
    })
}

/// `booking` of `hotel.reservation.booking.held.v1`: the word before what happened.
fn aggregate_of(subject: &str) -> Option<String> {
    let mut words: Vec<&str> = subject.split('.').collect();
    let is_version = |word: &str| {
        word.strip_prefix('v')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    if words.last().is_some_and(|word| is_version(word)) {
        words.pop();
    }
    words.pop()?;
    words.pop().filter(|word| !word.is_empty()).map(str::to_owned)
}
