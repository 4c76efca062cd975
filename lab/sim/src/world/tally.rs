use crate::report::counts;

counts!(pub(super) struct Tally {
    asked: "asked",
    lost: "lost",
    refused: "refused",
    withdrawn: "withdrawn",
    crashed: "crashed",
    restarted: "restarted",
    resets: "resets",
    unexpected: "unexpected",
    frozen: "frozen",
    parted: "parted",
    outages: "outages",
    disks_lost: "disks lost",
    disks_slow: "disks slow",
    disks_full: "disks full",
    torn: "writes torn",
    orphans: "orphans",
    reboots: "reboots",
});
