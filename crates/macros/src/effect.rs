//! `#[derive(Effect)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Result};

use crate::attributes::{Options, fields};
use crate::template;

const EXAMPLE: &str = r#""card.charge", key = "{order}:charge", answer = Receipt"#;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let fields = fields(input, "Effect")?;
    let mut options = Options::of(input, "effect", EXAMPLE)?;
    let kind = options.name.clone();
    let Some(key) = options.take("key") else {
        let message = "say by what the vendor knows a repeated call: key = \"{order}:charge\"";
        return Err(Error::new(options.span, message));
    };
    let key = template::expression(&key, &fields)?;
    let answer = options.take_type("answer")?;
    let answer = answer.map_or_else(|| quote!(()), |answer| quote!(#answer));
    options.finish("key and answer")?;
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::chapar::Effect for #name #types #bounds {
            const KIND: &'static str = #kind;
            type Answer = #answer;
            fn idempotency_key(&self) -> ::std::string::String {
                #key
            }
        }
    })
}
