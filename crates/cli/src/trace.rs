//! `chapar trace`: everything that one request set in motion.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use chapar::Store;
use chapar::ops::story;

use crate::output::Format;
use crate::store;

pub(crate) const EXAMPLES: &str = "\
Examples:
  chapar trace 0192f3a1-5c1e-7b5a-9d5e-0e2f5d7c9a10 --store postgres://localhost/hotel
  chapar trace 0192f3a1-5c1e-7b5a-9d5e-0e2f5d7c9a10 --svg booking.svg --store sqlite:hotel.db
  chapar trace 0192f3a1-5c1e-7b5a-9d5e-0e2f5d7c9a10 --store postgres://a/orders --store postgres://b/billing

If services have stores of their own, give all of them. `chapar find` shows the correlation of an
event, a booking or an idempotency key.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The correlation id.
    correlation: String,

    /// Write a drawing to this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    stores: Stores,
}

/// The stores of a system's services.
#[derive(clap::Args)]
pub(crate) struct Stores {
    /// The store: sqlite:FILE or postgres://user@host/database; can be repeated.
    #[arg(
        long = "store",
        env = "CHAPAR_STORE",
        hide_env_values = true,
        value_name = "URL",
        default_value = store::database_url(),
        hide_default_value = true,
        required = store::is_required()
    )]
    stores: Vec<String>,

    /// The form of the output.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

impl Stores {
    pub(crate) async fn open(&self) -> Result<Vec<Store>> {
        let mut stores = Vec::with_capacity(self.stores.len());
        for url in &self.stores {
            let store = store::open(url).await?;
            store.check_schema().await?;
            stores.push(store);
        }
        Ok(stores)
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let stores = args.stores.open().await?;
        let Some(story) = story(&stores, &args.correlation).await? else {
            let wanted = &args.correlation;
            bail!("nothing belongs to the correlation {wanted}; `chapar find {wanted}` looks for it as something else");
        };
        if let Some(file) = &args.svg {
            std::fs::write(file, story.to_svg())
                .with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("wrote {}", file.display());
        }
        match args.stores.format {
            Format::Json => println!("{}", serde_json::to_string_pretty(&story.to_json())?),
            Format::Text => print!("{}", story.to_text()),
        }
        Ok(ExitCode::SUCCESS)
    })
}
