//! Reading `#[event("…", name = value, …)]` and its like.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, Ident, LitInt, LitStr, Result, Token, Type,
};

/// The attribute of a derive: its leading text, and its named options.
pub(crate) struct Options {
    /// Where the attribute stands, for what is missing from it.
    pub(crate) span: Span,
    /// The leading text: a subject, a kind, a name.
    pub(crate) name: LitStr,
    options: Vec<(Ident, Given)>,
}

/// The value of an option.
pub(crate) enum Given {
    /// `id = reservation`, `state = State`
    Path(Box<Type>),
    /// `intent = "{reservation}:held"`
    Text(LitStr),
    /// `version = 2`
    Number(LitInt),
}

impl Options {
    /// Reads the one attribute of this name.
    pub(crate) fn of(input: &DeriveInput, attribute: &str, example: &str) -> Result<Self> {
        let mut found = input.attrs.iter().filter(|given| given.path().is_ident(attribute));
        let Some(given) = found.next() else {
            let message = format!("missing attribute: write #[{attribute}({example})]");
            return Err(Error::new(input.ident.span(), message));
        };
        if let Some(second) = found.next() {
            return Err(Error::new_spanned(second, format!("more than one #[{attribute}(…)]")));
        }
        let mut options: Options = given.parse_args().map_err(|error| {
            Error::new(error.span(), format!("{error}; write #[{attribute}({example})]"))
        })?;
        options.span = given.span();
        if options.name.value().trim().is_empty() {
            return Err(Error::new(options.name.span(), "this must not be empty"));
        }
        Ok(options)
    }

    /// Takes an option out.
    pub(crate) fn take(&mut self, name: &str) -> Option<Given> {
        let at = self.options.iter().position(|(given, _)| given == name)?;
        Some(self.options.remove(at).1)
    }

    /// Takes a text option out.
    pub(crate) fn take_text(&mut self, name: &str) -> Result<Option<LitStr>> {
        match self.take(name) {
            None => Ok(None),
            Some(Given::Text(text)) => Ok(Some(text)),
            Some(other) => Err(Error::new(other.span(), format!("{name} is a text in quotes"))),
        }
    }

    /// Takes an option out that names a type.
    pub(crate) fn take_type(&mut self, name: &str) -> Result<Option<Type>> {
        match self.take(name) {
            None => Ok(None),
            Some(Given::Path(path)) => Ok(Some(*path)),
            Some(other) => Err(Error::new(other.span(), format!("{name} is a type"))),
        }
    }

    /// Refuses what nothing asked for.
    pub(crate) fn finish(self, known: &str) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::new(name.span(), format!("unknown option `{name}`; there are {known}")))
            }
        }
    }
}

impl Given {
    pub(crate) fn span(&self) -> Span {
        match self {
            Given::Path(path) => path.span(),
            Given::Text(text) => text.span(),
            Given::Number(number) => number.span(),
        }
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: LitStr = input.parse()?;
        let mut options: Vec<(Ident, Given)> = Vec::new();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let option: Ident = input.parse()?;
            if options.iter().any(|(given, _)| *given == option) {
                return Err(Error::new(option.span(), format!("`{option}` is given twice")));
            }
            input.parse::<Token![=]>()?;
            let value = if input.peek(LitStr) {
                Given::Text(input.parse()?)
            } else if input.peek(LitInt) {
                Given::Number(input.parse()?)
            } else {
                Given::Path(input.parse()?)
            };
            options.push((option, value));
        }
        Ok(Options { span: name.span(), name, options })
    }
}

/// The named fields of a struct.
pub(crate) fn fields<'a>(input: &'a DeriveInput, derive: &str) -> Result<Vec<&'a syn::Field>> {
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => Ok(named.named.iter().collect()),
            Fields::Unit => Ok(Vec::new()),
            Fields::Unnamed(_) => Err(Error::new(
                input.ident.span(),
                format!(
                    "derive({derive}) needs named fields, which become the fields of a JSON object"
                ),
            )),
        },
        _ => Err(Error::new(input.ident.span(), format!("derive({derive}) is for structs"))),
    }
}

/// The text of a doc comment, its lines joined.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
    let lines =
        attributes.iter().filter(|given| given.path().is_ident("doc")).filter_map(|given| {
            let syn::Meta::NameValue(pair) = &given.meta else { return None };
            let syn::Expr::Lit(literal) = &pair.value else { return None };
            let syn::Lit::Str(text) = &literal.lit else { return None };
            Some(text.value().trim().to_owned())
        });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// `ReleaseAllocation` as `release_allocation`.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (index, letter) in name.char_indices() {
        if letter.is_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
