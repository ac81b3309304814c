//! A simulated TCP in place of the kernel: for studies with known true values, and for users without privileges.
//!
//! Each drain advances its time by a fixed number of steps, independently of the real clock.

use sojourn_tcplog::kernel::Cost;
use sojourn_tcplog::layout::{Flow, Options, Totals};
use sojourn_tcplog::simulated::{NOTHING_ASKED, Setup, Simulated};
use sojourn_tcplog::{FieldSet, Mode, Prefix, Source, SourceError};

use super::programs::{Facts, Programs, owned};

/// The number of steps between two drains.
const STEPS: u32 = 400;
/// The number of concurrent connections, and the bytes that each carries.
const CONNECTIONS: u32 = 4;
const BYTES: u64 = 400_000;

/// The simulated kernel, with the attached mode and options.
pub struct SimulatedPrograms {
    twin: Simulated,
    mode: Mode,
    asked: Options,
    prefixes: Vec<Prefix>,
    fields: FieldSet,
}

impl SimulatedPrograms {
    /// Starts with some connections; the seed determines all events.
    pub fn new(seed: u64, ring_bytes: usize, slots: u32, fields: FieldSet) -> Self {
        let mut twin = Simulated::new(Setup { seed, ring_bytes, slots, ..Setup::default() });
        (0..CONNECTIONS).for_each(|_| {
            twin.connect(BYTES);
        });
        Self { twin, mode: Mode::Off, asked: NOTHING_ASKED, prefixes: Vec::new(), fields }
    }

    fn put(&mut self) -> Result<(), SourceError> {
        let is_on = self.mode == Mode::On && self.asked.enabled != 0;
        let asked = Options { enabled: is_on.into(), ..self.asked };
        self.twin.ask(&asked, &self.prefixes)?;
        if !is_on {
            self.twin.rest();
        }
        Ok(())
    }
}

impl Source for SimulatedPrograms {
    fn drain(&mut self, take: &mut dyn FnMut(u32, &[u8])) -> Result<u64, SourceError> {
        if self.mode == Mode::On {
            for _ in 0..STEPS {
                if !self.twin.step() {
                    self.twin.connect(BYTES);
                }
            }
        }
        let fields = self.fields;
        self.twin.drain(&mut |cpu, event| {
            let mut event = event.to_vec();
            fields.clear(&mut event);
            take(cpu, &event);
        })
    }

    fn ask(&mut self, options: &Options, prefixes: &[Prefix]) -> Result<(), SourceError> {
        self.asked = *options;
        self.prefixes = prefixes.to_vec();
        self.put()
    }

    fn flows(&self, show: &mut dyn FnMut(u32, &Flow)) {
        self.twin.flows(show);
    }

    fn release(&mut self, slot: u32) -> Result<Option<Flow>, SourceError> {
        self.twin.release(slot)
    }

    fn totals(&self) -> Result<Vec<Totals>, SourceError> {
        self.twin.totals()
    }
}

impl Programs for SimulatedPrograms {
    fn facts(&self) -> anyhow::Result<Facts> {
        let attach = "nothing: it is simulated".to_owned();
        let columns = self.fields.columns_of_all();
        Ok(Facts {
            attach,
            is_simulated: true,
            clock: "TAI".to_owned(),
            fields: owned(&columns.there),
            absent: owned(&columns.absent),
            unasked: owned(&columns.unasked),
            ..Facts::default()
        })
    }

    fn attach_as(&mut self, mode: Mode) -> anyhow::Result<()> {
        self.mode = mode;
        Ok(self.put()?)
    }

    fn measure(&mut self, _wanted: bool) -> anyhow::Result<()> {
        Ok(())
    }

    fn costs(&self) -> anyhow::Result<Vec<Cost>> {
        Ok(Vec::new())
    }
}
