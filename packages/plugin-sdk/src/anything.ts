/** The plugin author defines the shape: without a type argument, any shape is accepted. */
// biome-ignore lint/suspicious/noExplicitAny: `unknown` would make every use of an untyped answer an error.
export type Anything = any;
