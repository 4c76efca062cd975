//! The agent's local HTTP API, its client, and the live page.
