//! Texts with `{field}` in them, and the fields that they name.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, Field, Ident, LitStr, Result, Type};

use crate::attributes::Given;

/// An expression that gives a `String`: a field, or a template over fields.
pub(crate) fn expression(given: &Given, fields: &[&Field]) -> Result<TokenStream> {
    match given {
        Given::Path(path) => {
            let field = field(path)?;
            check(&field, &field.to_string(), fields)?;
            Ok(quote!(::std::string::ToString::to_string(&self.#field)))
        }
        Given::Text(template) => fill(template, fields),
        Given::Number(number) => {
            Err(Error::new(number.span(), "name a field, or write a text such as \"{order}:paid\""))
        }
    }
}

/// A `format!` of the template with the struct's own fields.
pub(crate) fn fill(template: &LitStr, fields: &[&Field]) -> Result<TokenStream> {
    let text = template.value();
    let mut rest = text.as_str();
    let mut named: Vec<Ident> = Vec::new();
    while let Some((_, after)) = rest.split_once('{') {
        if let Some(escaped) = after.strip_prefix('{') {
            rest = escaped;
            continue;
        }
        let Some((name, after)) = after.split_once('}') else {
            return Err(Error::new(template.span(), "a `{` without its `}`"));
        };
        let ident: Ident = syn::parse_str(name).map_err(|_| {
            Error::new(template.span(), format!("`{{{name}}}` is not the name of a field"))
        })?;
        check(&Ident::new(&ident.to_string(), template.span()), name, fields)?;
        if !named.contains(&ident) {
            named.push(ident);
        }
        rest = after;
    }
    Ok(quote!(::std::format!(#template, #(#named = self.#named),*)))
}

fn field(path: &Type) -> Result<Ident> {
    let Type::Path(path) = path else {
        return Err(Error::new(path.span(), "name a field"));
    };
    path.path.get_ident().cloned().ok_or_else(|| Error::new(path.span(), "name a field"))
}

fn check(at: &Ident, name: &str, fields: &[&Field]) -> Result<()> {
    let known: Vec<String> =
        fields.iter().filter_map(|field| field.ident.as_ref()).map(Ident::to_string).collect();
    if known.iter().any(|field| field.trim_start_matches("r#") == name) {
        return Ok(());
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Error::new(at.span(), format!("no field `{name}`; the fields are {known}")))
}
