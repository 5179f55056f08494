use serde::{Deserialize, Deserializer};

/// An enum without fields that is a text in JSON, in statements and in messages. The derive macro
/// of the same name implements it, with `as_str`, `Display`, `Serialize`, `Deserialize` and
/// [`Param`](crate::Param).
///
/// ```
/// use chapar::prelude::*;
///
/// #[derive(Debug, Clone, Copy, PartialEq, TextEnum)]
/// enum Rail {
///     Card,
///     #[text("cash_on_arrival")]
///     Cash,
/// }
///
/// assert_eq!(Rail::Cash.as_str(), "cash_on_arrival");
/// assert_eq!(Rail::from_text("card"), Some(Rail::Card));
/// ```
pub trait TextEnum: Sized {
    /// The texts of all variants.
    const TEXTS: &'static [&'static str];

    /// The variant's text.
    fn text(&self) -> &'static str;

    /// The variant of a text.
    fn from_text(text: &str) -> Option<Self>;
}

/// What `derive(TextEnum)` reads a variant with.
pub fn text_enum<'de, T: TextEnum, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    T::from_text(&text).ok_or_else(|| serde::de::Error::unknown_variant(&text, T::TEXTS))
}
