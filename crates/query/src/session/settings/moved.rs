//! The settings that a session takes along to another node.

use std::collections::BTreeSet;

use super::{
    Settings,
    known::{Context, Kind, known},
};

impl Settings {
    /// Those that it has set, or has from its start, where its role may have had other ones than it
    /// has by now; as far as it can set them; roles last.
    pub fn to_move(&self) -> Vec<(String, String)> {
        let names: BTreeSet<&String> = self.changed.keys().chain(self.start.keys()).collect();
        let differs = |name: &&&String| self.changed.get(**name) != self.start.get(**name);
        let is_role = |name: &str| known(name).is_some_and(|known| known.kind == Kind::Role);
        let may = |name: &&&String| match known(name).map(|known| known.context) {
            None | Some(Context::User) => true,
            Some(Context::Superuser) => differs(name),
            Some(_) => false,
        };
        let (mut settings, mut roles) = (Vec::new(), Vec::new());
        for name in names.iter().filter(may) {
            let value = self.get(name).unwrap_or_default().to_owned();
            if is_role(name) { &mut roles } else { &mut settings }.push(((*name).clone(), value));
        }
        // Who the session is comes before the role that it has taken.
        roles.sort_by_key(|(name, _)| name == "role");
        settings.append(&mut roles);
        settings
    }
}
