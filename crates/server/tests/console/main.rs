//! The console as programs and people meet it.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod browser;
mod harness;
mod inspector;
mod pages;
mod stream;
