//! `#[derive(FromRow)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, LitStr, Result};

use crate::attributes::fields;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let fields = fields(input, "FromRow")?;
    let mut reads = Vec::with_capacity(fields.len());
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        let mut column = ident.to_string().trim_start_matches("r#").to_owned();
        if let Some(given) = field.attrs.iter().find(|given| given.path().is_ident("column")) {
            column = given.parse_args::<LitStr>()?.value();
        }
        reads.push(quote!(#ident: row.named(#column)?));
    }
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::chapar::FromRow for #name #types #bounds {
            fn from_row(row: &::chapar::Row) -> ::std::result::Result<Self, ::chapar::StoreError> {
                ::std::result::Result::Ok(Self { #(#reads),* })
            }
        }
    })
}
