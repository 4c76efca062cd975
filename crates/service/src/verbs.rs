//! The methods of the verbs, written once for every handle with a method `call`.

/// Passes the methods of all verbs to the macro `$write`, which writes them for one handle: name, arguments, reply,
/// verb.
#[macro_export]
macro_rules! verbs {
    ($write:ident) => {
        $write! {
            /// Returns the holders and the queue of a resource, in the whole cluster.
            ///
            /// # Errors
            /// [`Error::NoSuchResource`]; [`Error::NoMajority`] or [`Error::Recovering`] if the state is unknown at
            /// present.
            show(name: &str) -> $crate::ResourceDetails = $crate::verb::Show { name: name.parse()? };

            /// Returns the members, voters and sessions of the cluster as a voter knows them; if no voter answers, as
            /// this peer or agent knows them.
            cluster() -> $crate::ClusterView = $crate::verb::Cluster {};

            /// Changes the number of slots of a resource. Excess slots disappear when they are released.
            ///
            /// # Errors
            /// [`Error::NoSuchResource`], and see [`Error`].
            resize(name: &str, slots: u32) -> () = $crate::verb::Resize { name: name.parse()?, slots };

            /// Deletes a resource that is not in use, with its capacity. A later request creates it again, with higher
            /// fencing numbers.
            ///
            /// # Errors
            /// [`Error::InUse`] if a slot is held or a request waits, [`Error::NoSuchResource`], [`Error::Recovering`]
            /// if a party does not answer, and see [`Error`]. The resource is unchanged.
            remove(name: &str) -> () = $crate::verb::Remove { name: name.parse()? };

            /// Revokes the grant with this fencing number, anywhere in the cluster. Returns when its holder has
            /// stopped, or its lease has expired. A detached grant, which has no process that could be asked to stop,
            /// ends at once.
            ///
            /// # Errors
            /// [`Error::Lost`] if there is no such grant; an error if its host cannot be reached; and see [`Error`].
            revoke(name: &str, fencing: u64) -> () = $crate::verb::Revoke { name: name.parse()?, peer: None, fencing };

            /// Evicts a host from a resource without asking it. Its slots are granted to others at once, although its
            /// clients may still use them: only fencing numbers protect what they write.
            evict(name: &str, peer: $crate::PeerId) -> () = $crate::verb::Evict { name: name.parse()?, peer };

            /// Selects the voters; with `None` the cluster chooses.
            set_voters(hosts: Option<Vec<$crate::PeerId>>) -> () = $crate::verb::SetVoters { hosts };

            /// Removes a member that will not return. If it does return, it joins like a new one.
            ///
            /// # Errors
            /// If the host has a session, votes or may vote, or has given a detached grant that is valid; and see
            /// [`Error`].
            forget(peer: $crate::PeerId) -> () = $crate::verb::Forget { peer };
        }
    };
}

/// Writes the methods of the verbs for a handle with an async method `call`.
#[macro_export]
macro_rules! async_methods {
    ($($(#[$doc:meta])* $method:ident($($arg:ident: $type:ty),*) -> $reply:ty = $verb:expr;)*) => {
        $($(#[$doc])*
        pub async fn $method(&self, $($arg: $type),*) -> Result<$reply, $crate::Error> {
            self.call($verb).await.map(Into::into)
        })*
    };
}
