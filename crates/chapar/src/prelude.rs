//! Everything that a service is written with: `use chapar::prelude::*;`

pub use crate::app::App;
pub use crate::chapar::Chapar;
pub use crate::consumer::Consumer;
pub use crate::cx::Cx;
pub use crate::effects::{Attempt, Effect, EffectOutcome, EffectTask};
pub use crate::failure::{Failure, Handled, OrFailure, applied};
pub use crate::params;
pub use crate::projection::Projection;
pub use crate::running::{Running, ctrl_c};
pub use crate::saga::{Outcome, Saga, SagaData, SagaState, SagaTimer, SagaUndo, Start, Step};
pub use crate::service::Service;
pub use crate::text::TextEnum;
pub use chapar_core::{Event, IntoDraft, Profile, Tenant};
pub use chapar_macros::{Effect, Event, FromRow, Saga, SagaState, SagaTimer, SagaUndo, TextEnum};
pub use chapar_sql::{FromRow, Migration, Param};
pub use serde::{Deserialize, Serialize};
