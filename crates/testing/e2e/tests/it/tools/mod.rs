//! Names and definitions of tools of several kinds of providers.

mod changed_definitions;
mod installed_names;
mod invalid_results;
