//! The HTTP side of Chapar: a console that shows what runs, live, in one page.
//!
//! The page is rendered on the server and works without JavaScript; with it, it stays live over
//! server-sent events. There is no build step and no external resource: templates, style sheet and
//! script are compiled in.
//!
//! ```no_run
//! # async fn example(chapar: chapar::Chapar, running: chapar::Running) -> Result<(), Box<dyn std::error::Error>> {
//! use chapar_server::{Console, Facts};
//! use tokio_util::sync::CancellationToken;
//!
//! let facts = Facts::new("hotel bookings", "the database");
//! let console = Console::new(chapar, running.metrics(), facts);
//! let bound = console.bind("127.0.0.1:0".parse()?).await?;
//! println!("console: {}", bound.url());
//! bound.serve(CancellationToken::new()).await?;
//! # Ok(())
//! # }
//! ```

mod assets;
mod console;
mod events;
mod guard;
mod letters;
mod listen;
mod live;
mod oidc;
mod ops;
mod page;
mod problem;
mod pulse;
mod pushed;
mod receive;
mod show;
mod snapshot;

pub use console::{Bound, Console, ConsoleError, Facts};
pub use oidc::{BadToken, Expected, KeySet};
pub use ops::Ops;
pub use pushed::{GOOGLE_KEYS, PushAnswer, PushEndpoint};
pub use receive::{Answer, Received, Receiver, Trouble};
