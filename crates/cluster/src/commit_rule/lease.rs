use super::CommitRule;
use crate::Moment;

impl CommitRule {
    /// Until when no other node can lead without force: until then this one may say what is
    /// committed, and answer what was asked of it ([`crate::lease`]).
    pub fn lease_until(&self) -> Moment {
        let (Some(length), Some(sets)) = (self.config.lease, &self.sets) else { return Moment(u64::MAX) };
        if self.fenced.is_some() {
            return Moment::default();
        }
        sets.lease_until(|holder| {
            let member = self.members.get(&holder.node).filter(|member| member.incarnation == holder.incarnation);
            member.and_then(|member| member.observed).map_or(Moment::default(), |sent| sent.after(length))
        })
    }
}
