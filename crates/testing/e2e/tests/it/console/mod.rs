//! The web console in a browser, and its sign-in.

mod pages;
mod sign_in;
