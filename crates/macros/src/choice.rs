//! Derives for enums: `TextEnum`, `SagaState`, `SagaTimer` and `SagaUndo`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Ident, LitStr, Result, Token, Variant};

use crate::attributes::{doc, snake};

/// The text of each variant: its name in snake case, or what an attribute says.
fn texts(variants: &[&Variant], attribute: &str) -> Result<Vec<String>> {
    let text = |variant: &&Variant| {
        let given = variant.attrs.iter().find(|given| given.path().is_ident(attribute));
        match given {
            Some(given) => given.parse_args::<LitStr>().map(|text| text.value()),
            None => Ok(snake(&variant.ident.to_string())),
        }
    };
    variants.iter().map(text).collect()
}

pub(crate) fn text(input: &DeriveInput) -> Result<TokenStream> {
    let variants = plain_variants(input, "TextEnum")?;
    let name = &input.ident;
    let idents: Vec<&Ident> = variants.iter().map(|variant| &variant.ident).collect();
    let texts = texts(&variants, "text")?;
    Ok(quote! {
        impl #name {
            /// Its text, as it is stored and sent.
            pub fn as_str(&self) -> &'static str {
                match self { #(Self::#idents => #texts),* }
            }
        }
        impl ::std::fmt::Display for #name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl ::chapar::TextEnum for #name {
            const TEXTS: &'static [&'static str] = &[#(#texts),*];
            fn text(&self) -> &'static str {
                self.as_str()
            }
            fn from_text(text: &str) -> ::std::option::Option<Self> {
                match text {
                    #(#texts => ::std::option::Option::Some(Self::#idents),)*
                    _ => ::std::option::Option::None,
                }
            }
        }
        impl ::chapar::Param for #name {
            fn param(&self) -> ::chapar::Value {
                ::chapar::Param::param(self.as_str())
            }
        }
        impl ::chapar::__macro::Serialize for #name {
            fn serialize<S: ::chapar::__macro::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
        impl<'de> ::chapar::__macro::Deserialize<'de> for #name {
            fn deserialize<D: ::chapar::__macro::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                ::chapar::__macro::text_enum(deserializer)
            }
        }
    })
}

pub(crate) fn state(input: &DeriveInput) -> Result<TokenStream> {
    let variants = plain_variants(input, "SagaState")?;
    let name = &input.ident;
    let idents: Vec<&Ident> = variants.iter().map(|variant| &variant.ident).collect();
    let texts = texts(&variants, "state")?;
    let copy = copy(name);
    Ok(quote! {
        #copy
        impl ::chapar::saga::SagaState for #name {
            fn as_str(self) -> &'static str {
                match self { #(Self::#idents => #texts),* }
            }
            fn from_name(name: &str) -> ::std::option::Option<Self> {
                match name {
                    #(#texts => ::std::option::Option::Some(Self::#idents),)*
                    _ => ::std::option::Option::None,
                }
            }
        }
        impl ::chapar::Param for #name {
            fn param(&self) -> ::chapar::Value {
                ::chapar::Param::param(::chapar::saga::SagaState::as_str(*self))
            }
        }
        impl ::std::fmt::Debug for #name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(::chapar::saga::SagaState::as_str(*self))
            }
        }
    })
}

pub(crate) fn timer(input: &DeriveInput) -> Result<TokenStream> {
    let variants = plain_variants(input, "SagaTimer")?;
    let name = &input.ident;
    let idents: Vec<&Ident> = variants.iter().map(|variant| &variant.ident).collect();
    let texts: Vec<String> = idents.iter().map(|ident| snake(&ident.to_string())).collect();
    let does: Vec<String> = variants.iter().map(|variant| doc(&variant.attrs)).collect();
    let mut after = Vec::with_capacity(variants.len());
    for variant in &variants {
        let Some(given) = variant.attrs.iter().find(|given| given.path().is_ident("timer")) else {
            let message = "say when it fires: #[timer(after = \"30s\")]";
            return Err(Error::new(variant.ident.span(), message));
        };
        let text = given.parse_args_with(|input: syn::parse::ParseStream<'_>| {
            let option: Ident = input.parse()?;
            if option != "after" {
                return Err(Error::new(option.span(), "unknown option; there is `after`"));
            }
            input.parse::<Token![=]>()?;
            input.parse::<LitStr>()
        })?;
        let millis = millis(&text.value()).ok_or_else(|| {
            Error::new(text.span(), "not a time; write a number with ms, s, m, h or d: \"30s\"")
        })?;
        after.push(quote!(::std::time::Duration::from_millis(#millis)));
    }
    let copy = copy(name);
    Ok(quote! {
        #copy
        impl ::chapar::saga::SagaTimer for #name {
            const ALL: &'static [Self] = &[#(Self::#idents),*];
            fn as_str(self) -> &'static str {
                match self { #(Self::#idents => #texts),* }
            }
            fn after(self) -> ::std::time::Duration {
                match self { #(Self::#idents => #after),* }
            }
            fn does(self) -> &'static str {
                match self { #(Self::#idents => #does),* }
            }
        }
        impl ::std::fmt::Debug for #name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(::chapar::saga::SagaTimer::as_str(*self))
            }
        }
    })
}

pub(crate) fn undo(input: &DeriveInput) -> Result<TokenStream> {
    let variants = variants(input, "SagaUndo")?;
    let name = &input.ident;
    let idents = variants.iter().map(|variant| &variant.ident);
    let texts = variants.iter().map(|variant| snake(&variant.ident.to_string()));
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::chapar::saga::SagaUndo for #name #types #bounds {
            fn name(&self) -> &'static str {
                match self { #(Self::#idents { .. } => #texts),* }
            }
        }
    })
}

/// What every state and timer can do, so that users need not list it.
fn copy(name: &Ident) -> TokenStream {
    quote! {
        impl ::std::clone::Clone for #name {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl ::std::marker::Copy for #name {}
        impl ::std::cmp::PartialEq for #name {
            fn eq(&self, other: &Self) -> bool {
                ::std::mem::discriminant(self) == ::std::mem::discriminant(other)
            }
        }
        impl ::std::cmp::Eq for #name {}
    }
}

fn variants<'a>(input: &'a DeriveInput, derive: &str) -> Result<Vec<&'a Variant>> {
    match &input.data {
        Data::Enum(data) if !data.variants.is_empty() => Ok(data.variants.iter().collect()),
        _ => {
            let message = format!("derive({derive}) is for enums with at least one variant");
            Err(Error::new(input.ident.span(), message))
        }
    }
}

fn plain_variants<'a>(input: &'a DeriveInput, derive: &str) -> Result<Vec<&'a Variant>> {
    let variants = variants(input, derive)?;
    if let Some(variant) = variants.iter().find(|variant| !matches!(variant.fields, Fields::Unit)) {
        let message = format!(
            "derive({derive}) takes variants without fields; put what the saga knows into its struct"
        );
        return Err(Error::new_spanned(variant, message));
    }
    Ok(variants)
}

fn millis(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|millis| *millis > 0)
}
