//! Tests of layers below that need a whole server: privileges, logins, commands.

mod access;
mod auth;
mod commands;
