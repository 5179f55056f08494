//! `#[derive(Saga)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Result};

use crate::attributes::{Given, Options, fields};
use crate::template;

const EXAMPLE: &str = r#""booking", version = 1, key = reservation, state = State"#;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let fields = fields(input, "Saga")?;
    let mut options = Options::of(input, "saga", EXAMPLE)?;
    let saga = options.name.clone();
    let version: u32 = match options.take("version") {
        None => 1,
        Some(Given::Number(number)) => number.base10_parse()?,
        Some(other) => return Err(Error::new(other.span(), "version is a number, such as 2")),
    };
    let Some(key) = options.take("key") else {
        let message = "say which field tells sagas apart: key = field";
        return Err(Error::new(options.span, message));
    };
    let key = template::expression(&key, &fields)?;
    let Some(state) = options.take_type("state")? else {
        let message = "name the enum of its states, which derives SagaState: state = State";
        return Err(Error::new(options.span, message));
    };
    let none = || quote!(::chapar::saga::Never);
    let timer = options.take_type("timer")?.map_or_else(none, |timer| quote!(#timer));
    let undo = options.take_type("undo")?.map_or_else(none, |undo| quote!(#undo));
    options.finish("version, key, state, timer and undo")?;
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::chapar::saga::SagaData for #name #types #bounds {
            const NAME: &'static str = #saga;
            const VERSION: u32 = #version;
            type State = #state;
            type Timer = #timer;
            type Undo = #undo;
            fn key(&self) -> ::std::string::String {
                #key
            }
        }
    })
}
